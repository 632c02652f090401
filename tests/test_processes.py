"""Signals and children of every verb: what was ignored at the start stays so, every child ends with its
parent.

Processes: signals and children are those of a process.
"""

import ast
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import psutil
import pytest
from click.testing import CliRunner

from rn50 import process
from rn50.cli import group, main
from rn50.files import ROOT
from rn50.launch import job
from rn50.launch.campaign import watch
from rn50.process import python
from rn50.reproduction import reproduction
from rn50.results import rcp
from rn50.results.validity import compliance
from rn50.speed import worker
from tests.conftest import with_changes
from tests.results.scored import write_runs
from tests.support.ended import all_end, is_alive

ENDS = (signal.SIGTERM, signal.SIGHUP)
SOURCES = sorted((ROOT / "rn50").rglob("*.py"))


@pytest.fixture
def hang_up():
    """Sets what SIGHUP does; what it did before comes back."""
    before = signal.getsignal(signal.SIGHUP)
    yield lambda handler: signal.signal(signal.SIGHUP, handler)
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("ignored, status", [(True, 0), (False, -signal.SIGTERM)])
def test_a_campaign_under_nohup_outlives_its_terminal(hang_up, ignored, status):
    hang_up(signal.SIG_IGN if ignored else signal.SIG_DFL)
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    with watch._signals_passed_on(child):
        os.kill(os.getpid(), signal.SIGHUP)
        if ignored:
            child.stdin.close()
        assert child.wait() == status
    assert signal.getsignal(signal.SIGHUP) == (signal.SIG_IGN if ignored else signal.SIG_DFL)


def test_what_is_ignored_at_the_start_stays_ignored(hang_up):
    hang_up(signal.SIG_IGN)
    assert process.not_ignored(signal.SIGTERM, signal.SIGHUP) == [signal.SIGTERM]
    hang_up(signal.SIG_DFL)
    assert process.not_ignored(signal.SIGHUP) == [signal.SIGHUP]


CTRL_C_DURING_IMPORT = """
class Finder:
    def find_spec(name, path, target=None):
        if name == "rn50.cli.group":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder)
from rn50.__main__ import main
"""
CTRL_C_DURING_FORK = """
from rn50.cli import group
from rn50.__main__ import main

@group.main.command()
def fork():
    os.register_at_fork(after_in_parent=lambda: signal.raise_signal(signal.SIGINT))
    process.run(["true"])

main(["fork"])
"""
CTRL_C_IN_A_VERB = """
from rn50.cli import group
from rn50.__main__ import main

@group.main.command()
def verb():
    signal.raise_signal(signal.SIGINT)

main(["verb"])
"""
CTRL_C_WHILE_A_LIBRARY_LOADS = """
from rn50.cli import group
from rn50.__main__ import main

class Finder:
    def find_spec(name, path, target=None):
        if name == "sched":  # as NumPy does, whose C code prints the error and raises another
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                sys.excepthook(*sys.exc_info())
                raise ImportError("numpy._core.multiarray failed to import")

sys.meta_path.insert(0, Finder)

@group.main.command()
def verb():
    import sched

main(["verb"])
"""


STOPPED = "rn50: stopped by SIGINT; the same command starts again\n"


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize(
    "code, said",
    [(CTRL_C_DURING_IMPORT, ""), (CTRL_C_DURING_FORK, ""), (CTRL_C_IN_A_VERB, STOPPED),
     (CTRL_C_WHILE_A_LIBRARY_LOADS, STOPPED)],
    ids=["import", "fork", "verb", "library"])
def test_ctrl_c_ends_a_command_from_its_first_import_on_unless_it_is_ignored(code, said, ignored):
    done = subprocess.run(
        [sys.executable, "-c", f"import os, signal, sys\nfrom rn50 import process\n{code}"],
        capture_output=True, text=True, cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL))
    assert (done.returncode, done.stderr) == ((0, "") if ignored else (128 + signal.SIGINT, said))


@pytest.fixture
def copying(tmp_path, monkeypatch):
    """Sends a signal where a verb has written into its temporary folder; the test, and not its process, fails
    where nothing answers it."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    rcp.judge.cache_clear()
    answered = {number: signal.signal(number, lambda *_: pytest.fail("ends at once")) for number in ENDS}

    def signalled(number, owner, name):
        def end(*_, **__):
            assert list((tmp_path / "temporary").iterdir())
            os.kill(os.getpid(), number)

        monkeypatch.setattr(owner, name, end)

    yield signalled
    rcp.judge.cache_clear()
    for number, handler in answered.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDS)
@pytest.mark.parametrize(
    "verb, owner, name",
    [("check {}", compliance, "copy_records"),
     ("report {} -o {}/../page.html", compliance, "copy_records"), ("score {}", rcp, "_write_log"),
     ("compare {} {}", rcp, "_write_log"), ("atlas {} -o {}/../page.html", rcp, "_write_log"),
     ("rcp {}", rcp, "_write_log"), ("reproduce {} --dry-run", reproduction, "plan")])
def test_a_signal_that_ends_a_verb_leaves_no_copy(tmp_path, copying, verb, owner, name, number):
    write_runs(tmp_path / "results", 100, 101, 103, 106, 110)
    copying(number, owner, name)
    done = CliRunner().invoke(main, [word.format(*2 * [tmp_path / "results"]) for word in verb.split()])
    assert done.exit_code == 128 + number, done.output
    assert not list((tmp_path / "temporary").iterdir()) and not list(tmp_path.glob("page*"))


def test_no_verb_on_results_forgets_it():
    assert {
        type(each) for each in main.commands.values() if each.callback.__module__ == "rn50.cli.results"
    } == {group.CleanedUpVerb}


def test_a_signal_to_a_check_ends_its_checkers_too(tmp_path):
    """In a process of its own: SIGTERM comes while official checkers run, one of which takes a minute."""
    write_runs(tmp_path / "results", 100, 101, 103, 106, 110)
    (tmp_path / "temporary").mkdir()
    slow = "from rn50.results.validity import compliance as c, checkers\nrun = checkers.run\n"
    slow += (
        "checkers.run = lambda *_: run('import time; time.sleep(60)')\nfrom rn50.__main__ import main; main()"
    )
    command = [*python("-c", slow), "check", str(tmp_path / "results")]
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    ) as verb:

        def forks():
            return [each.pid for each in psutil.Process(verb.pid).children(recursive=True)]

        while len(forks()) < 2:  # what forks, and a checker
            assert verb.poll() is None
            time.sleep(0.05)
        children = forks()
        verb.terminate()
        assert verb.wait(30) == 128 + signal.SIGTERM
    assert all_end(lambda: children) and not list((tmp_path / "temporary").iterdir())


def test_no_other_place_handles_a_hang_up():
    """Each asks ``process.not_ignored`` first."""
    lines = [line for file in SOURCES for line in file.read_text().splitlines() if "signal.SIGHUP" in line]
    assert len(lines) == 4 and [line for line in lines if "not_ignored(" not in line] == []


def started_in(file):
    """(line, the call) of every process that a file starts."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and re.fullmatch(
            r"subprocess\.(Popen|run|call|check_call|check_output)", ast.unparse(node.func)
        ):
            yield f"{file.relative_to(ROOT)}:{node.lineno}", {each.arg for each in node.keywords}


def test_every_child_ends_with_its_parent():
    """Or within seconds: facts about the machine are read beside MXNet too, whose engine a fork stops."""
    started = dict(call for file in SOURCES for call in started_in(file))
    assert len(started) == 9
    assert [place for place, options in started.items() if not options & {"preexec_fn", "timeout"}] == []
    limited = {place.split(":")[0] for place, options in started.items() if "preexec_fn" not in options}
    assert limited == {"rn50/machine/software.py", "rn50/machine/sources.py"}


JOB = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
time.sleep(600)
"""
MEASURED = """
import pathlib, sys
from rn50.settings import named
from rn50.speed import worker
worker.python = lambda *_: [sys.executable, "-c", *sys.argv[1:3]]
worker.run("speed.cell", named.read("DEMO_CPU"), pathlib.Path(sys.argv[3]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_measurement_whose_parent_is_killed_leaves_nothing(tmp_path, number):
    started = tmp_path / "started"
    command = python("-c", MEASURED, JOB, str(started), str(tmp_path / "cell.log"))
    measuring = subprocess.Popen(command, cwd=ROOT)
    while not started.exists() or not started.read_text():
        assert measuring.poll() is None
        time.sleep(0.02)
    its_job = int(started.read_text())
    measuring.send_signal(number)
    measuring.wait()
    try:
        assert all_end(lambda: [its_job])
    finally:
        if is_alive(its_job):
            os.kill(its_job, signal.SIGKILL)


@pytest.mark.parametrize("status", [130, 2])
def test_ctrl_c_that_ended_a_measurement_ends_the_verb(tmp_path, tiny_config, monkeypatch, status):
    """Also where this process ignores it: a script that starts it with & has it so."""
    monkeypatch.setattr(worker, "python", lambda *_: ["sh", "-c", f"exit {status}"])
    config = with_changes(tiny_config, os.environ)
    if status == 130:
        with pytest.raises(KeyboardInterrupt):
            worker.run("speed.cell", config, tmp_path / "cell.log")
    else:
        assert worker.run("speed.cell", config, tmp_path / "cell.log").failure == "exit status 2"


def test_the_job_of_a_run_asks_too(hang_up, monkeypatch):
    handled = []
    hang_up(signal.SIG_IGN)
    monkeypatch.setattr(job.signal, "signal", lambda number, _: handled.append(number))
    job._StopOnSignal()
    assert signal.SIGHUP not in handled and {signal.SIGINT, signal.SIGTERM} <= set(handled)
