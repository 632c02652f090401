"""Logs of made-up runs of four epochs."""

import json

from rn50.benchmark import rules


def write_run(
    file, epoch_ms=10_000, accuracy=0.77, train_samples=rules.TRAIN_SAMPLES, platform="8xBox", extra=(),
    start_ms=0,
):
    """A run of four epochs of ``epoch_ms``, or each of its own; evaluated after 2 and 4 for 500 ms each, with
    300 ms lost before the first epoch."""
    each_ms = epoch_ms if isinstance(epoch_ms, list) else [epoch_ms] * 4
    records = [
        (0, "submission_benchmark", "resnet", {}), (0, "submission_platform", platform, {}),
        (0, "init_start", None, {}), (0, "seed", each_ms[0], {}), (0, "global_batch_size", 3264, {}),
        (0, "opt_name", "lars", {}), (0, "adam_opt_end_learning_rate", 0.5, {}),
        (0, "lars_opt_base_learning_rate", 10.5, {}), (0, "lars_opt_end_learning_rate", 0.0001, {}),
        (0, "lars_opt_learning_rate_warmup_epochs", 1, {}), (0, "lars_opt_learning_rate_decay_steps", 5, {}),
        (2000, "init_stop", None, {}), (3000, "run_start", None, {}),
        (3000, "train_samples", train_samples, {}), (3000, "eval_samples", 50000, {}), *extra]
    now = 3300
    for epoch in (1, 2, 3, 4):
        number = {"epoch_num": epoch}
        records += [(now, "epoch_start", None, number)]
        now += each_ms[epoch - 1]
        records += [(now, "epoch_stop", None, number)]
        if epoch % 2 == 0:
            value = accuracy if epoch == 4 else 0.4
            records += [(now, "eval_start", None, number), (now + 500, "eval_accuracy", value, number)]
            records += [(now + 500, "eval_stop", None, number)]
            now += 500
    status = "success" if accuracy >= rules.TARGET_ACCURACY else "aborted"
    records.append((now, "run_stop", None, {"status": status}))
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = (
        json.dumps({"time_ms": start_ms + t, "key": k, "value": v, "metadata": m}) for t, k, v, m in records)
    file.write_text("".join(f":::MLLOG {line}\n" for line in lines), encoding="utf-8")
    return file


def write_result(folder, speeds=(10_000, 9_000, 11_000, 12_000, 10_500), **options):
    for number, epoch_ms in enumerate(speeds):
        write_run(folder / f"result_{number}.txt", epoch_ms, **options)
    return folder
