"""Kill processes at random moments, and test that no finished result is lost and no partial one is taken for
whole.

    python -m tests.support.kill_points [--points 100] [--seed 1] [--json]

Runs small campaigns of run_experiments.sh in a checkout of its own. At each point it kills one process by
SIGKILL: the script, the launcher, a rank, or horovodrun (every eighth point has two ranks, if Horovod is
installed). Half of the moments are random within the time that a run takes; half are up to 50 ms after a line
of the log. Then the same command is given again, half of the times while processes that were left behind are
still running. After every point each result has to be whole, and every result of earlier points has to be
unchanged, byte for byte. Every campaign has to finish. The exit status is 1 if one of this fails.
"""

import argparse
import collections
import contextlib
import importlib.util
import itertools
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

import psutil

from rn50.data.demo import dataset
from rn50.files import ROOT
from rn50.results.parse import TOKEN

RUNS = 3
EPOCHS = 2
MOMENTS = ("init_start", "init_stop", "run_start", "epoch_stop", "eval_stop", "run_stop")
LIMIT_S = 120
TINY = {
    "OPTIMIZER": "lars", "BATCHSIZE": "16", "LR": "2.0", "WARMUP_EPOCHS": "1", "NUMEPOCHS": str(EPOCHS),
    "MOM": "0.9", "WD": "5e-5", "LARSETA": "0.001", "LABELSMOOTHING": "0.1", "EVAL_OFFSET": "0",
    "EVAL_PERIOD": "1", "DGXSYSTEM": "TINY", "DGXNNODES": "1", "DEVICE": "cpu", "PRECISION": "float32",
    "NUMEXAMPLES": "203", "NUMVALEXAMPLES": "57", "NUMCLASSES": "10", "IMAGE_SIZE": "32", "EVAL_RESIZE": "36",
    "CROP_AREA_MIN": "0.3", "WIDTH": "0.125", "DALI_THREADS": "1", "DALI_ROI_DECODE": "1"}


MARK = "RN50_KILL_POINTS"
"""Variable that every process of a call inherits, and by which it is found."""


class Call:
    """A call of run_experiments.sh with all processes that it starts, in a session of its own."""

    def __init__(self, environment: dict, folder: pathlib.Path) -> None:
        self._name = uuid.uuid4().hex
        python = str(pathlib.Path(sys.executable).parent)
        everything = {
            **os.environ, "PATH": f"{python}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", **environment}
        self._process = subprocess.Popen(
            ["./run_experiments.sh"], cwd=str(folder), env={**everything, MARK: self._name},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True)
        self.printed = ""

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def processes(self) -> list:
        """Return the processes of the call that are alive."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self._name:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
                pass  # ended, or not ours
        return found

    def wait(self) -> int:
        """Wait at most LIMIT_S for the end of the script and return its exit status. Nothing of the call is
        left afterwards."""
        try:
            self.printed, _ = self._process.communicate(timeout=LIMIT_S)
        finally:
            self.end()
        return self._process.returncode

    def end(self) -> None:
        """Kill what is left of the call."""
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self._process.stdout and not self._process.stdout.closed:
            self.printed, _ = self._process.communicate()


def events(log: pathlib.Path) -> list:
    """Return the MLPerf events of a log that are whole lines."""
    return [
        json.loads(line.split(f"{TOKEN} ")[1]) for line in log.read_text().splitlines(True)
        if line.endswith("\n")]


def keys(log: pathlib.Path) -> list:
    """Return the names of the events of a log."""
    return [event["key"] for event in events(log)]


def checkout(folder: pathlib.Path) -> pathlib.Path:
    """Put the parts of the repository that a campaign needs, and a data set, into ``folder``."""
    for part in ("rn50", "implementations", "configs"):
        shutil.copytree(
            str(ROOT / part), str(folder / part), symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for script in ROOT.glob("run*.sh"):
        shutil.copy(str(script), str(folder))
    dataset.generate(folder / "data", dataset.Settings(train=203, val=57), workers=1)
    lines = [
        f"export {name}='{value}'\n" for name, value in {**TINY, "DATADIR": str(folder / "data")}.items()]
    (folder / "configs" / "config_TINY.sh").write_text("".join([*lines, 'export DGXNGPU="${RANKS:-1}"\n']))
    return folder


def start(folder: pathlib.Path, results: pathlib.Path, ranks: int) -> Call:
    """Start the one command of a campaign."""
    environment = {
        "CONFIG_FILE": "", "DGXSYSTEM": "TINY", "RESULTS": str(results), "NEXP": str(RUNS),
        "RANKS": str(ranks)}
    return Call(environment, folder)


def victims(call: Call) -> dict:
    """Return role -> the processes of the call with this role, which may be killed."""
    roles = {
        "run_experiments.sh": "script", "rn50 launch": "launcher", "run_commandline": "horovodrun",
        "rn50 train": "rank"}
    found = collections.defaultdict(list)
    for process in call.processes():
        try:
            line = " ".join(process.cmdline())
        except Exception:  # it has ended
            continue
        role = next(
            (role for part, role in roles.items() if part in line and "env HOROVOD" not in line), None)
        if role:
            found[role].append(process)
    return found


def moment(call: Call, results: pathlib.Path, duration: float, chance: random.Random) -> str:
    """Wait for a random moment of the campaign and return its description."""
    deadline = time.monotonic() + LIMIT_S
    if chance.random() < 0.5:
        seconds = chance.uniform(0, duration)
        deadline = time.monotonic() + seconds
        while not call.ended and time.monotonic() < deadline:
            time.sleep(0.005)
        return f"after {seconds:.1f} s"
    key = chance.choice(MOMENTS)
    running = next(
        (path for path in (results / f"result_{run}.txt" for run in range(RUNS)) if not path.exists()), None)
    if running is not None:
        log = running.with_name(running.name + ".partial")
        began = time.time()
        while not call.ended and not running.exists() and time.monotonic() < deadline:
            try:
                if log.stat().st_mtime >= began and key in keys(log):
                    break
            except (OSError, ValueError, IndexError):
                pass  # does not exist yet, or ends in the middle of a line
            time.sleep(0.002)
    time.sleep(chance.uniform(0, 0.05))
    return f"behind {key}"


def whole(result: pathlib.Path) -> bool:
    """Return True if the log is that of one run from beginning to end."""
    logged = keys(result)
    once = all(
        logged.count(key) == 1
        for key in ("submission_benchmark", "seed", "init_stop", "run_start", "run_stop"))
    stop = events(result)[-1]
    return (
        once
        and result.read_bytes().endswith(b"\n")
        and stop["key"] == "run_stop"
        and logged.count("eval_accuracy")
        == logged.count("epoch_stop")
        == EPOCHS  # these runs all miss the target
        and json.loads(result.with_suffix(".json").read_text())["seed"] is not None
    )


def look(results: pathlib.Path, finished: dict) -> list:
    """Return the faults of the results now, and record new results in ``finished``."""
    wrong = [f"{path} is lost" for path in finished if not path.exists()]
    for path in sorted(results.glob("result_*.txt")):
        if path in finished and path.read_bytes() != finished[path]:
            wrong.append(f"{path} has changed")
        elif not whole(path):
            wrong.append(f"{path} is not whole")
        finished[path] = path.read_bytes()
    for line in wrong:
        print(line, file=sys.stderr, flush=True)
    return wrong


def to_the_end(folder: pathlib.Path, results: pathlib.Path) -> list:
    """Repeat the command until the campaign has all its results; return the faults if it does not get
    there."""
    for _ in range(2):
        call = start(folder, results, 1)
        status = call.wait()
        if len(list(results.glob("result_*.txt"))) == RUNS:
            return [] if status in (0, 1) else [f"a whole campaign ended with {status}"]
    return [f"{results.name} did not come to its end: {call.printed}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    chance = random.Random(args.seed)
    counts: collections.Counter = collections.Counter()
    wrong, kept = [], 0
    temporary = tempfile.TemporaryDirectory(prefix="rn50-kill-points-")
    folder = checkout(pathlib.Path(temporary.name))
    campaigns = (folder / "results" / f"campaign_{number}" for number in itertools.count())
    finished: dict[pathlib.Path, bytes] = {}
    results, left = next(campaigns), []
    begin = time.monotonic()
    wrong += to_the_end(folder, results)
    duration = (time.monotonic() - begin) / RUNS
    wrong += look(results, finished)
    results, finished = next(campaigns), {}
    while counts["points"] < args.points:
        call = start(
            folder, results, 2 if counts["points"] % 8 == 7 and importlib.util.find_spec("horovod") else 1)
        left.append(call)
        when = moment(call, results, duration, chance)
        choice = victims(call)
        if choice:
            role = chance.choice(sorted(choice))
            chance.choice(choice[role]).send_signal(signal.SIGKILL)
            counts["points"] += 1
            counts[role] += 1
            print(f"point {counts['points']}: {role} killed {when}", file=sys.stderr, flush=True)
        if not choice or chance.random() < 0.5:  # else the next command meets processes that were left behind
            deadline = time.monotonic() + LIMIT_S
            while any(each.processes() for each in left) and time.monotonic() < deadline:
                time.sleep(0.05)
            if any(each.processes() for each in left):
                wrong.append(f"point {counts['points']}: processes are left after {LIMIT_S} s")
            for each in left:
                each.end()
            left = []
        wrong += look(results, finished)
        if not left and len(finished) >= RUNS - 1:
            wrong += to_the_end(folder, results) + look(results, finished)
            kept += len(finished)
            results, finished = next(campaigns), {}
    for each in left:
        each.end()
    wrong += to_the_end(folder, results) + look(results, finished)
    report = {
        "points": counts.pop("points"), "killed": dict(counts), "results_finished": kept + len(finished),
        "wrong": wrong, "minutes": (time.monotonic() - begin) / 60}
    temporary.cleanup()
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        print(
            f"{report['points']} processes killed "
            f"({', '.join(f'{n} x {role}' for role, n in counts.items())}) in {report['minutes']:.1f} "
            f"minutes; {report['results_finished']} results finished, {len(wrong)} faults")
        print(*wrong, sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
