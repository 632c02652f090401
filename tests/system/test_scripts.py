"""The scripts called from anywhere, on any path, with configurations that are none: an answer within a second
or two."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest

from tests.support import campaigns
from tests.support.typed import on_terminal
from tests.system.job import ROOT, Job

SCRIPTS = ("run_and_time.sh", "run_experiments.sh", "run_with_docker.sh")
USER_CAN_MEND = 2


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose path has a blank, and decoys: what a careless script would take from the caller's
    folder or CDPATH."""
    folder = tmp_path / "a checkout"
    (tmp_path / "decoy" / "configs").mkdir(parents=True)
    shutil.copytree(str(ROOT / "configs"), str(folder / "configs"))
    for script in SCRIPTS:
        shutil.copy(str(ROOT / script), str(folder))
    for part in ("rn50", "implementations"):
        (folder / part).symlink_to(ROOT / part)
    return folder


@pytest.fixture
def here(tmp_path):
    """Where the user stands, with a configuration that sources what lies beside it."""
    folder = tmp_path / "my runs"
    folder.mkdir()
    lines = (
        (ROOT / "configs" / "config_DEMO_CPU.sh") .read_text()
        .replace("export OPTIMIZER=lars", "source ./common.sh"))
    (folder / "my config.sh").write_text(lines)
    (folder / "common.sh").write_text("export OPTIMIZER=lars\n")
    return folder


def run(command, cwd, **environment):
    """Exit status and what was said; a script that waits for something fails the test."""
    python = str(pathlib.Path(sys.executable).parent)
    unset = dict.fromkeys(("CONFIG_FILE", "DGXSYSTEM", "RESULTS", "DATADIR", "NEXP"), "")
    done = subprocess.run(
        [str(each) for each in command], cwd=str(cwd), stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=60,
        env={
            **os.environ, "CDPATH": f".:{cwd.parent / 'decoy'}", **unset,
            "PATH": f"{python}:{environment.pop('PATH', '')}:{os.environ['PATH']}", **environment})
    return done.returncode, done.stdout + done.stderr


HELPS = [
    [f"./{script}", "--help"]
    for script in (*SCRIPTS, "run.sub", "requirements/install.sh", "benchmarks/gpu.sh")]


@pytest.mark.parametrize("command", [*HELPS, ["make", "help"]], ids=lambda command: command[0])
def test_no_line_of_a_help_is_wider_than_a_terminal(command):
    status, said = run(command, ROOT)
    assert status == 0 and said.count("\n") > 5
    assert [line for line in said.splitlines() if len(line) > 79] == []


@pytest.mark.parametrize("command", [["./run_and_time.sh"], ["requirements/install.sh", "no-set"]])
def test_a_list_of_names_on_a_terminal_is_folded_between_them(command):
    shown = on_terminal(command, DGXSYSTEM="", CONFIG_FILE="").lines
    piped = run(command, ROOT)[1]
    assert piped.count("\n") == 1 < len(shown) and max(map(len, shown)) < 80
    assert " ".join(shown).split() == piped.split()


@pytest.mark.parametrize("how", ["relative", "absolute", "PATH", "link"])
@pytest.mark.parametrize("script", SCRIPTS[:2])
def test_a_script_works_from_any_folder_with_paths_relative_to_it(checkout, here, script, how):
    (here / "link").symlink_to(pathlib.Path("..") / checkout.name / script)
    called = {
        "relative": f"../{checkout.name}/{script}", "absolute": checkout / script, "PATH": script,
        "link": "./link"}[how]
    status, said = run([called], here, PATH=str(checkout), CONFIG_FILE="my config.sh", DATADIR="my data")
    assert status == USER_CAN_MEND
    assert f"{here}/my data: No such file or directory; set DATADIR" in said and len(said.splitlines()) == 1


@pytest.mark.parametrize(
    "image, said",
    [("image.sqsh", "{here}/image.sqsh"), ("./image.sqsh", "{here}/image.sqsh"), ("rn50:pytorch-gpu", None)])
def test_an_image_file_of_a_slurm_job_is_where_the_user_stands(checkout, here, image, said):
    """pyxis takes a name without a slash in front for an image of a registry."""
    shutil.copy(str(ROOT / "run.sub"), str(checkout))
    (here / "image.sqsh").write_text("")
    sbatch = checkout / "sbatch"
    sbatch.write_text('#!/bin/sh\necho "CONT: $CONT"\n')
    sbatch.chmod(0o755)
    environ = {"CONT": image, "SLURM_JOB_ID": "", "DGXSYSTEM": "DEMO_CPU", "PATH": str(checkout)}
    status, printed = run([checkout / "run.sub"], here, **environ)
    assert (status, printed) == (0, f"CONT: {(said or image).format(here=here)}\n")


def test_results_are_relative_to_where_the_user_stands(checkout, here):
    (here / "mine").mkdir()
    (here / "mine" / "result_0.txt").write_text("no log\n")
    status, said = run(
        [checkout / "run_experiments.sh"], here, DGXSYSTEM="DEMO_CPU", RESULTS="mine", NEXP="1")
    assert status != 0 and f"kept, {here}/mine/result_0.txt is there" in said


def test_kept_runs_of_another_configuration_end_a_campaign_before_its_first_run(checkout, here):
    campaigns.make(here / "mix", "0" * 40, {}, runs=1, first=1)
    before = campaigns.snapshot(here / "mix")
    status, said = run([checkout / "run_experiments.sh"], here, DGXSYSTEM="DEMO_CPU", RESULTS="mix")
    assert status == USER_CAN_MEND and "-> " not in said
    assert f"rn50: results: {here}/mix has runs of another configuration: " in said
    assert "DGXSYSTEM is NF5688M6 in result_0.txt, DEMO_CPU in this command; " in said
    assert campaigns.snapshot(here / "mix") == before


def test_fewer_runs_than_there_are_keep_all_of_them(checkout, here):
    """The report of five runs is not replaced by that of one."""
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    for number in (0, 1, 2, 4):
        (here / f"result_{number}.txt").touch()
    status, said = run(
        [checkout / "run_experiments.sh"], here, DGXSYSTEM="DEMO_CPU", RESULTS=".", NEXP="1")
    files = " ".join(f"{here}/result_{number}.txt" for number in range(3))
    assert status == 0 and said.splitlines() == [
        f"-m rn50 summary {files} --system DEMO_CPU --kept",
        *(f"run {number + 1} of 3: kept, {here}/result_{number}.txt is there" for number in range(3)),
        f"-m rn50 summary {files} --system DEMO_CPU"]


SCRIPT_SAYS = ["rn50: stopped by SIGINT; the same command again resumes"]
RUN_SAYS = ["rn50: run 1 stopped by SIGINT; the same command again resumes there"]


@pytest.mark.parametrize(
    "during, status, says",
    [
        ("doctor", 0, SCRIPT_SAYS),
        ("--expected", 0, SCRIPT_SAYS),
        ("--expected", 128 + signal.SIGINT, []),  # it has said so
        ("launch", 0, RUN_SAYS),
        ("--so-far", 0, SCRIPT_SAYS),
        ("--so-far", 128 + signal.SIGINT, []),
    ],
)
def test_ctrl_c_ends_a_campaign_whatever_it_does_to_the_program_that_runs(checkout, during, status, says):
    python = checkout / ".venv" / "bin" / "python"  # a program that loses the signal, or ends as rn50 does
    python.parent.mkdir(parents=True)
    answer = f'trap "" INT TERM; kill -INT 0; sleep 0.2; exit {status}'
    python.write_text(f'#!/bin/sh\ncase "$*" in *{during}*) {answer} ;; esac\n')
    python.chmod(0o755)
    script = checkout / "run_experiments.sh"
    script.write_text(script.read_text().replace("began >= 60", "began >= 0"))  # these runs take no minute
    job = Job({"CONFIG_FILE": "", "DGXSYSTEM": "DEMO_CPU", "RESULTS": ""}, [f"./{script.name}"], checkout)
    assert job.wait() == 128 + signal.SIGINT
    assert job.complaints == says and "run 2 of 5" not in job.out


def test_a_sourced_file_that_is_missing_is_named(checkout, here):
    (here / "common.sh").unlink()
    for script in SCRIPTS[:2]:
        status, said = run([checkout / script], here, CONFIG_FILE="my config.sh")
        assert status == USER_CAN_MEND
        assert re.search(
            rf"rn50: {re.escape(str(here))}/my config.sh:\d+: sources ./common.sh, which is not there", said)


@pytest.mark.parametrize("content", ["export LR=1\nexit 0\n", "LR=1\nset -e\nfalse\n", "LR=1\nexit 3\n"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_configuration_that_ends_the_shell_is_an_error(checkout, here, script, content):
    (here / "ends.sh").write_text(content)
    status, said = run([checkout / script], here, CONFIG_FILE="ends.sh")
    assert status == USER_CAN_MEND
    assert f"{here}/ends.sh: cannot be sourced" in said and len(said.splitlines()) == 1


@pytest.mark.parametrize("name, status", [("INT", 128 + signal.SIGINT), ("TERM", 128 + signal.SIGTERM)])
def test_a_signal_while_a_configuration_is_sourced_is_not_its_fault(checkout, here, name, status):
    (here / "slow.sh").write_text(f"kill -{name} $$\n")
    assert run([checkout / "run_and_time.sh"], here, CONFIG_FILE="slow.sh") == (status, "")


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_is_no_configuration_is_an_error(checkout, here, script):
    os.mkfifo(str(here / "pipe.sh"))
    for name in ("pipe.sh", "/dev/zero", "absent.sh", "."):
        status, said = run([checkout / script], here, CONFIG_FILE=name)
        assert status == USER_CAN_MEND and str(here / name) in said and len(said.splitlines()) == 1


@pytest.mark.parametrize("nexp", ["0", "1_0", "\uff11", "1e3", "99999999999999999999", "a[$(touch PWNED)]"])
@pytest.mark.parametrize("script", SCRIPTS[1:])
def test_a_number_of_runs_that_is_none(checkout, here, script, nexp):
    status, said = run([checkout / script], here, DGXSYSTEM="DEMO_CPU", NEXP=nexp)
    assert (status, said) == (USER_CAN_MEND, f"{script}: NEXP={nexp} is not a number of runs; set NEXP=5\n")


@pytest.mark.parametrize("target", ["demo", "demo-paddle", "demo-pytorch"])
def test_make_refuses_a_number_of_runs_before_it_installs_anything(checkout, target):
    shutil.copy(str(ROOT / "Makefile"), str(checkout))
    status, said = run(["make", target], checkout, NEXP="abc")
    assert status == USER_CAN_MEND and said.startswith("make: NEXP=abc is not a number of runs; set NEXP=5\n")


@pytest.mark.parametrize("variable", ["DGXSYSTEM", "CONFIG_FILE"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_what_a_terminal_obeys_is_not_repeated(checkout, here, script, variable):
    status, said = run([checkout / script], here, **{variable: "/\x1b]0;owned\x07\nforged"})
    assert status == USER_CAN_MEND and "/?]0;owned??forged" in said and len(said.splitlines()) == 1


def test_a_path_that_no_engine_can_mount_is_refused(checkout, here):
    engine = here / "podman"
    engine.write_text("#!/bin/sh\necho DATADIR\n")
    engine.chmod(0o755)
    status, said = run(
        [checkout / "run_with_docker.sh"], here, DGXSYSTEM="DEMO_CPU", DATADIR="a,readonly", PATH=str(here),
        ENGINE="podman")
    assert status == USER_CAN_MEND
    assert said == (
        f"run_with_docker.sh: {here}/a,readonly: a path with a comma or a quotation mark cannot be mounted; "
        "use another\n")


def test_setup_says_what_to_type_next_where_it_is_the_goal(checkout):
    shutil.copy(str(ROOT / "Makefile"), str(checkout))
    (checkout / "requirements").mkdir()
    (checkout / "requirements" / "install.sh").write_text("#!/bin/sh\n")
    (checkout / "requirements" / "install.sh").chmod(0o755)
    done = "setup: done; next: make demo, or .venv/bin/rn50 doctor\n"
    assert run(["make", "setup"], checkout) == (0, done)
    assert done not in run(["make", "setup", "help"], checkout)[1]


def test_a_folder_of_make_may_have_a_blank(checkout):
    shutil.copy(str(ROOT / "Makefile"), str(checkout))
    status, said = run(["make", "-n", "demo-deploy", "DEPLOYED=a b"], checkout)
    assert status == 0 and '-o "a b/model.onnx"' in said and not re.search(r'[^"]a b/', said)
