"""A run as a search sees it, without the training: accuracy is a made-up function of the hyperparameters and
the seed.

Run as a program it stands for ``rn50 launch``: a log that grows, SIGTERM, exit status and all.
SIMULATED_EPOCH_S is what an epoch takes, and SIMULATED_FAULTS says what befalls runs with a value of a
variable: {"BATCHSIZE=64": "fault"}.
"""

import json
import math
import os
import pathlib
import random
import signal
import sys
import time

from rn50.benchmark import rules
from rn50.errors import Status
from rn50.run.mlperf_log import RunLog
from rn50.settings import config as configuration

BEST = {"LR": 6.0, "batch": 32, "WARMUP_EPOCHS": 2, "WD": 1e-4, "NUMEPOCHS": 9}


def epochs_needed(config, seed):
    """A bowl around ``BEST``, in factors; a seed is worth a tenth of an epoch or two."""
    h, batch = config.hyperparameters, config.global_batch_size
    away = {
        "LR": 1.5 * math.log(h.learning_rate / batch / (BEST["LR"] / BEST["batch"])),
        "batch": 0.8 * math.log2(batch / BEST["batch"]),
        "WARMUP_EPOCHS": 0.4 * (h.warmup_epochs - BEST["WARMUP_EPOCHS"]),
        "WD": 0.3 * math.log2(h.weight_decay / BEST["WD"]),
        "NUMEPOCHS": 0.3 * (h.num_epochs - BEST["NUMEPOCHS"])}
    return 4.0 + sum(value**2 for value in away.values()) + random.Random(seed).gauss(0, 0.1)


def accuracy(epoch, needed):
    """On a line through the target."""
    return min(0.99, max(0.05, rules.TARGET_ACCURACY * epoch / needed))


def befall(log):
    for condition, fault in json.loads(os.environ.get("SIMULATED_FAULTS", "{}")).items():
        name, value = condition.split("=")
        if os.environ[name] != value:
            continue
        if fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        log.run_stop("aborted")
        diverged = fault == "diverged"
        print(
            "rn50: the training loss is nan in epoch 2: lower LR" if diverged
            else "rn50: the disk is on fire; put it out")
        sys.exit(Status.DIVERGED if diverged else Status.USER_ERROR)


def main():
    os.environ["INPUT_LIBRARY"] = "dali"  # "auto" imports MXNet and DALI to know, for most of the run's time
    config = configuration.from_environment()
    pause = float(os.environ.get("SIMULATED_EPOCH_S", "0.02"))
    log = RunLog(0, pathlib.Path(config.run.result_file))

    def aborted(*_):
        log.run_stop("aborted")
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, aborted)
    log.submission(config, 0)
    log.hyperparameters(config, config.run.seed, config.ranks, [])
    log.run_start()
    log.samples(config, "float32", None)
    needed, reached = epochs_needed(config, config.run.seed), False
    for epoch in range(1, config.hyperparameters.num_epochs + 1):
        time.sleep(pause)
        if epoch == 2:
            befall(log)
        log.eval_start(epoch)
        log.eval_stop(epoch, accuracy(epoch, needed))
        reached = accuracy(epoch, needed) >= rules.TARGET_ACCURACY
        if reached:
            break
    log.run_stop("success" if reached else "aborted")
    log.finish()
    sys.exit(0 if reached else 3)


if __name__ == "__main__":
    main()
