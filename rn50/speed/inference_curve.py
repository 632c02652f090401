"""Picture of an inference measurement: latency over the batch size, and throughput over latency."""

import io
from collections.abc import Sequence

from matplotlib.figure import Figure

from rn50 import files
from rn50.results.report.plots import reset
from rn50.speed.inference import Result


def draw(results: Sequence[Result]) -> str:
    """Return the picture as SVG: a colour for each model on an engine; p50 drawn through, p99 dashed."""
    subjects = list(dict.fromkeys(each.subject for each in results))
    sizes = sorted({each.batch_size for each in results})
    reset()
    figure = Figure(figsize=(11, 5), constrained_layout=True)
    over_batch, over_latency = figure.subplots(1, 2)
    for number, subject in enumerate(subjects):
        own = sorted((each for each in results if each.subject == subject), key=lambda each: each.batch_size)
        p50, p99 = ([each.latency_ms[name] for each in own] for name in ("p50", "p99"))
        drawn = {"marker": "o", "markersize": 4, "color": f"C{number}"}
        over_batch.plot([each.batch_size for each in own], p50, "-", label=subject.name, **drawn)
        over_batch.plot([each.batch_size for each in own], p99, "--", **drawn)
        over_latency.plot(p50, [each.images_per_second.median for each in own], "-", **drawn)
    over_batch.set_xscale("log", base=2)
    over_batch.set_xticks(sizes, [str(each) for each in sizes])
    over_batch.set(xlabel="images of a request", ylabel="latency in ms: p50, dashed p99")
    over_latency.set(xlabel="p50 of the latency in ms", ylabel="images/s")
    for axes in (over_batch, over_latency):
        axes.set_yscale("log")
        axes.grid(True, linewidth=0.4)
        axes.yaxis.set_major_formatter("{x:,g}")
    over_latency.set_xscale("log")
    over_latency.xaxis.set_major_formatter("{x:,g}")
    figure.legend(loc="outside lower center", fontsize="small", ncols=2)
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": files.MARK})
    return stream.getvalue()
