"""Logs of made-up runs with all that the rules of a result want, and what their score prints."""

import io
import json

from rn50.benchmark import rules
from rn50.results import parse, power, scoreboard
from rn50.terminal import Terminal


def write_run(
    file, seconds, accuracy=0.76, status="success", train_samples=rules.TRAIN_SAMPLES, platform="8xBox",
    benchmark="resnet", base_learning_rate=10.5, global_batch_size=3264, start=0, epochs=35, **of_samples,
):
    """A log with all that the rules of a result want; ``status`` None leaves the run unfinished, and
    ``of_samples`` is the metadata of train_samples."""
    first_ms = 1_700_000_000_000 + 1000 * start

    def line(key, value=None, at=0.0, **metadata):
        record = {"time_ms": round(first_ms + 1000 * at), "key": key, "value": value, "metadata": metadata}
        return ":::MLLOG " + json.dumps(record) + "\n"

    values = {
        "submission_benchmark": benchmark, "submission_org": "Somebody", "submission_division": "closed",
        "submission_status": "onprem", "submission_platform": platform, "cache_clear": True,
        "init_start": None, "seed": seconds, "global_batch_size": global_batch_size,
        "gradient_accumulation_steps": 1, "opt_name": "lars", "lars_epsilon": 0.0,
        "lars_opt_base_learning_rate": base_learning_rate, "lars_opt_end_learning_rate": 0.0001,
        "lars_opt_learning_rate_decay_poly_power": 2, "lars_opt_learning_rate_decay_steps": 37,
        "lars_opt_learning_rate_warmup_epochs": 2, "lars_opt_momentum": 0.9, "lars_opt_weight_decay": 5e-5,
        "init_stop": None, "run_start": None, "train_samples": train_samples,
        "eval_samples": rules.EVAL_SAMPLES}
    lines = [
        line(key, value, **(of_samples if key == "train_samples" else {})) for key, value in values.items()]

    def late(epoch):
        """No two runs are as fast in the same epochs."""
        return 0.0005 * seconds * (7 * seconds % 97) if 0 < epoch < 5 else 0

    first = 1  # the accuracies of two runs differ by more than in a copy that was edited
    for last in range((epochs - 1) % 4 + 1, epochs + 1, 4):
        top_1 = 0.5 + int(seconds) * 389 % 997 / 10_000
        begin, end = (seconds * epoch / epochs + late(epoch) for epoch in (first - 1, last))
        lines += [
            line("block_start", at=begin, first_epoch_num=first, epoch_count=last - first + 1),
            line(
                "eval_accuracy", accuracy if last == epochs else top_1, at=end, epoch_num=last),
            line("block_stop", at=end, first_epoch_num=first)]
        first = last + 1
    lines += [] if status is None else [line("run_stop", at=seconds, status=status)]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(lines))


def write_runs(folder, *seconds, **options):
    for number, each in enumerate(seconds):
        write_run(folder / f"result_{number}.txt", each, **options)


def save_beside(folder, config, **facts):
    """Write beside each log of a folder the part of a sidecar that studies read."""
    for log in folder.glob("result_*.txt"):
        saved = {"variables": config.as_environment(), **facts}
        log.with_suffix(".json").write_text(json.dumps(saved))


def power_record(key, at, value=None, **metadata):
    return ":::MLLOG " + json.dumps({"time_ms": round(at), "key": key, "value": value, "metadata": metadata})


def write_power(log, readings, begin=None, end=None, node=0, more=()):
    """A power log of (seconds after run_start, watts)."""
    start = parse.read_log(log).run_start_ms
    file = log.parent / "power" / log.stem / f"node_{node}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    begin = readings[0][0] - 1 if begin is None else begin
    end = readings[-1][0] if end is None else end
    lines = [
        power_record(power.START, start + 1000 * begin, not_included="GPUs"), *more,
        *(power_record(power.READING, start + 1000 * at, watts) for at, watts in readings),
        power_record(power.STOP, start + 1000 * end)]
    file.write_text("\n".join(lines) + "\n")
    return file


def kept(system):
    return [run.file.name for run in system.runs if run.kept]


def printed(scores):
    stream = io.StringIO()
    scoreboard.print_table(scores, Terminal(file=stream))
    return stream.getvalue()
