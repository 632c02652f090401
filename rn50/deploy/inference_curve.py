"""Draw the picture of ``rn50 bench inference``: latency over the batch size, and throughput over latency."""

from collections.abc import Sequence

from rn50.deploy.inference import InferenceResult
from rn50.results.report import plots


def draw(results: Sequence[InferenceResult]) -> bytes:
    """Return the picture as SVG. Each model on an engine has a colour; p50 is solid, p99 dashed."""
    subjects = list(dict.fromkeys(result.subject for result in results))
    ordered = sorted(results, key=lambda result: result.batch_size)
    sizes = sorted({result.batch_size for result in results})
    figure = plots.figure(11, 5)
    over_batch, over_latency = figure.subplots(1, 2)
    for number, subject in enumerate(subjects):
        points = [result for result in ordered if result.subject == subject]
        p50, p99 = ([getattr(point.latency_ms, name) for point in points] for name in ("p50", "p99"))
        style = {"marker": "o", "markersize": 4, "color": f"C{number}"}
        over_batch.plot([point.batch_size for point in points], p50, "-", label=subject.name, **style)
        over_batch.plot([point.batch_size for point in points], p99, "--", **style)
        over_latency.plot(p50, [point.images_per_second.median for point in points], "-", **style)
    over_batch.set_xscale("log", base=2)
    over_batch.set_xticks(sizes, [str(size) for size in sizes])
    over_batch.set(xlabel="images of a request", ylabel="latency in ms: p50, dashed p99")
    over_latency.set(xlabel="p50 of the latency in ms", ylabel="images/s")
    for axes in (over_batch, over_latency):
        axes.set_yscale("log")
        axes.grid(True, linewidth=0.4)
        axes.yaxis.set_major_formatter("{x:,g}")
    over_latency.set_xscale("log")
    over_latency.xaxis.set_major_formatter("{x:,g}")
    figure.legend(loc="outside lower center", fontsize="small", ncols=2)
    return plots.picture(figure)
