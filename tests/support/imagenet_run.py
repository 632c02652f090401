"""The log of a whole run on ImageNet, as this project writes it, without the run: only its times and
accuracies are made up."""

import functools
import json
import os
import pathlib

from rn50.benchmark import rules, schedule
from rn50.files import ROOT
from rn50.run.mlperf_log import RunLog
from rn50.settings import config as configuration
from rn50.settings.document import Document, absolute_paths

CONFIGURATION = pathlib.Path(__file__).resolve().parents[2] / "configs" / "config_NF5688M6.sh"
ACCURACIES = (0.3244, 0.43164, 0.51848, 0.59288, 0.6182, 0.6983, 0.72614, 0.74946, 0.76082)
CERTIFICATE = {"certificate_sha256": "5e" * 32, "data_set_sha256": "da" * 32}
UNITS = (3, 4, 6, 3)
EPOCH_MS = 46_000


def tensors():
    """The 161 names that the rulesets compare."""
    names = ["conv0_weight", "bn0_gamma", "bn0_beta", "fc1_weight", "fc1_bias"]
    for stage, units in enumerate(UNITS, 1):
        for unit in range(1, units + 1):
            for part in ("1", "2", "3") + (("sc",) if unit == 1 else ()):
                convolution = "1sc" if part == "sc" else part
                block = f"stage{stage}_unit{unit}"
                names += [
                    f"{block}_conv{convolution}_weight", f"{block}_bn{part}_gamma", f"{block}_bn{part}_beta"]
    return names


@functools.cache
def _sourced(file, _):
    """What bash makes of a file, once in an environment; a relative path begins in the checkout."""
    sourced = Document(file).sourced()
    return {**sourced, **absolute_paths(sourced, ROOT)}


def configured(file=CONFIGURATION, **environment):
    """The configuration of a file, with variables set beside it."""
    defaults = {"SUBMISSION_ORG": "Somebody", "SUBMISSION_STATUS": "onprem", "CACHE_CLEARED": "1"}
    sourced = _sourced(file, (file.stat().st_mtime_ns, *sorted(os.environ.items())))
    return configuration.from_environment({**defaults, **sourced, **environment})


def write(
    file, seed=1, epoch_ms=EPOCH_MS, start_ms=1_700_000_000_000, config=None, accuracies=ACCURACIES, **changes
):
    """Writes the log of a run that ends with the last of ``accuracies``, by default of 35 epochs on ImageNet,
    with ``changes`` of the configuration's variables; returns ``file``."""
    config = config or configured(**changes)
    h = config.hyperparameters
    log = RunLog(0, file)
    log.submission(config, start_ms)
    log.hyperparameters(config, seed, config.ranks, tensors())
    log.run_start()
    log.samples(config, "float16", CERTIFICATE)
    first = 1
    for last, accuracy in zip(
        schedule.evaluation_epochs(h.num_epochs, h.eval_offset, h.eval_period), accuracies, strict=False
    ):
        log.block_start(first, last - first + 1)
        for epoch in range(first, last + 1):
            log.epoch_start(epoch)
            log.epoch_stop(epoch, 27_000.0, 6.9 / epoch)
        log.eval_start(last)
        fewer = 0 if accuracy == accuracies[-1] else (seed - 1) % 97 / config.data.eval_samples
        log.eval_stop(last, accuracy - fewer)
        log.block_stop(first)
        first = last + 1
    log.run_stop("success" if accuracies[-1] >= rules.TARGET_ACCURACY else "aborted")
    log.finish()
    _retime(file, start_ms, epoch_ms, 20 * ((seed - 1) % 49))
    return file


def _retime(file, start_ms, epoch_ms, late_ms):
    """Make the first epoch ``late_ms`` slower and the second as much faster: no two runs are alike."""
    now = start_ms
    lines = []
    for line in file.read_text().splitlines():
        token, fields = line.split(" ", 1)
        fields = json.loads(fields)
        epoch = fields["metadata"].get("epoch_num")
        now += epoch_ms + {1: late_ms, 2: -late_ms}.get(epoch, 0) if fields["key"] == "epoch_stop" else 1
        fields["time_ms"] = now
        lines.append(f"{token} {json.dumps(fields)}\n")
    file.write_text("".join(lines))


def published_tree(folder, round_="v1.1", org="Org", system="box", **description):
    """A published tree of one result; its logs are those of configs/config_NF5688M6.sh."""
    logs = folder / f"training_results_{round_}" / org / "results" / system / "resnet"
    logs.mkdir(parents=True)
    for number in range(rules.RUNS):
        write(logs / f"result_{number}.txt", seed=number + 1, epoch_ms=46_000 + 100 * number)
    file = folder / f"training_results_{round_}" / org / "systems" / f"{system}.json"
    file.parent.mkdir(exist_ok=True)
    fields = {
        "division": "closed", "status": "onprem", "number_of_nodes": "2", "accelerators_per_node": "4",
        **description}
    file.write_text(json.dumps({"accelerator_model_name": "N/A", "framework": "MXNet", **fields}))
    return logs
