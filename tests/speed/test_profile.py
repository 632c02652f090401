"""``rn50 profile`` tells where the time of training goes: real profiles of every framework on the tiny
set."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from rn50 import files, printed
from rn50.cli import main
from rn50.errors import UserError
from rn50.rates import Comparison, Rates
from rn50.speed import profile
from rn50.speed.input_pipeline import InputSpeed, Stages, Waiting
from rn50.speed.overlap import Overlap
from rn50.speed.profile import OperatorPerStep, Profile
from rn50.terminal import Terminal
from tests.contract.frameworks import FRAMEWORKS, installed
from tests.support import documented

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONVOLUTIONS = {
    "mxnet": ("Convolution", "_backward_Convolution"), "paddle": ("conv2d", "Conv2dGradNodeFinal"),
    "pytorch": ("aten::mkldnn_convolution", "aten::convolution_backward")}
IN_TRACE = {"mxnet": "", "paddle": "Conv2dGradNodeFinal", "pytorch": "aten::convolution_backward"}
"""First part of the name of an event that the timeline has."""


def rn50_profile(environment, *options):
    return subprocess.run(
        [sys.executable, "-m", "rn50", "profile", "--seconds", "4", "--rounds", "2", *map(str, options)],
        cwd=str(ROOT), env={**os.environ, **environment}, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("framework", sorted(FRAMEWORKS))
def test_every_operator_is_counted_and_a_change_is_told(tiny_environment, tmp_path, framework):
    installed(framework)
    environment = {**tiny_environment, "FRAMEWORK": framework}
    done = rn50_profile(environment, "--steps", 3, "-o", tmp_path / "before", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert documented.differences("profile", told) == []
    operators = {each["name"]: each for each in told["operators"]}
    for name in CONVOLUTIONS[framework]:  # 53 in the network, each counted by itself
        assert operators[name]["calls"] == 53 and operators[name]["milliseconds"] > 0
    assert 0 <= told["idle"] < 1 and told["gain"] is None
    spent = sum(each["milliseconds"] for each in told["operators"])
    assert (
        spent == pytest.approx(1e3 * told["profiled_step_seconds"] * (1 - told["idle"]), rel=0.01)
        or told["idle"] == 0)
    trace = json.loads((tmp_path / "before" / "trace_0.json").read_text())
    assert any(each.get("name", "").startswith(IN_TRACE[framework]) for each in trace["traceEvents"])

    again = rn50_profile(environment, "-o", tmp_path / "after", "--baseline", tmp_path / "before")
    assert again.returncode == 0, again.stdout + again.stderr
    assert [line[0] for line in again.stdout.splitlines() if line[:2] in ("1 ", "2 ", "3 ", "4 ")] == [
        "1", "2", "3", "4"]
    assert re.search(
        r"; reader ratio [\d.]+%, reader cost [\d.]+ ms, batch cost [\d.]+ ms, ips [\d,]+ images/s$",
        again.stdout, re.MULTILINE)
    assert "times as fast" in again.stdout and CONVOLUTIONS[framework][1] in again.stdout
    assert not list(tmp_path.glob("*/*.partial"))


def made(real, operators=(("a", 2, 300), ("b", 1, 100))):
    rates = Rates(real, real - 5, real + 5)
    speed = InputSpeed(
        system="X", device="cpu", ranks=1, precision="float32", images_per_second=Stages(rates, rates, rates),
        real_of_synthetic=Comparison(1.0, 0.9, 1.1, 5), waiting=Waiting(0.1, 0.01, 0.1, real),
        overlap=Overlap("cpu", real, real, real, Comparison(1.0, 0.9, 1.1, 5)), bottleneck="the step")
    return Profile(speed, 2, 0.5, [OperatorPerStep(*each) for each in operators])


def written(**changes):
    """The content of the file of a profile."""
    operators = {"steps": 1, "step_seconds": 1, "operators_a_step": [["x", 1, 1]], **changes}
    return json.dumps({"rate": printed.as_json(made(100).rate), "operators": operators})


def test_what_is_written_is_read_with_its_types(tmp_path):
    (tmp_path / "profile.json").write_text(written())
    assert profile.read(tmp_path) == made(100)._replace(
        steps=1, profiled_step_seconds=1, operators=[OperatorPerStep("x", 1, 1)])


def test_gaps_and_operators_are_told_a_step():
    assert made(100).idle == pytest.approx(0.2)
    assert made(100, [("a", 1, 350), ("b", 1, 350)]).idle == 0  # side by side
    assert made(100).milliseconds("a") == pytest.approx(300) and made(100).milliseconds("gone") == 0


@pytest.mark.parametrize(
    "now, says",
    [(111, "111 images/s for 100 before: 1.110 times as fast; no round of the one reached"),
     (89, "0.890 times as fast; no round of the one reached"),
     (104, "1.040 times as fast; rounds of both overlap, so it may be chance")])
def test_a_gain_is_told_with_what_the_rounds_say(now, says):
    assert says in profile.gain(made(100), made(now))


def test_a_long_name_of_a_kernel_makes_no_wide_table(capsys):
    """The processor time of what cut the blanks at the end of a line grew with the square of their number:
    here 20 s, now hundredths of one."""
    now = made(100, [("kernel" * 10_000, 1, 300), ("b", 1, 100)])
    before = time.process_time()
    profile.show(now, None, pathlib.Path("x"), Terminal())
    Terminal().print(" " * 60_000 + "|")
    assert time.process_time() - before < 5
    *table, blanks = capsys.readouterr().out.splitlines()
    assert max(map(len, table)) < 300 and any("…" in line for line in table)
    assert blanks == " " * 60_000 + "|"


@pytest.mark.parametrize(
    "content, says",
    [(None, "cannot be read (No such file or directory)"), ("{", "no JSON"),
     ("{}", "not what `rn50 profile` writes"),
     (written(operators_a_step=[[1]]), "not what `rn50 profile` writes"),
     (written(step_seconds=0), "not what `rn50 profile` writes"),
     ('{"rate": {}, "operators": {"steps": 1, "step_seconds": 1, "operators_a_step": []}}',
      "not what `rn50 profile` writes"),
     (written().replace('"median": 100', '"median": "x"'), "not what `rn50 profile` writes")])
def test_no_earlier_profile(tmp_path, content, says):
    if content is not None:
        (tmp_path / "profile.json").write_text(content)
    with pytest.raises(UserError) as refused:
        profile.read(tmp_path)
    assert says in str(refused.value) and "give a folder of `rn50 profile`" in str(refused.value)


def test_a_profile_never_replaces_its_baseline(tmp_path):
    (tmp_path / profile.REPORT_FILE).write_text(f'{{"file": "{files.MARK}"}}')
    done = CliRunner(mix_stderr=False).invoke(
        main, ["profile", "DEMO_CPU", "-o", str(tmp_path), "--baseline", str(tmp_path)])
    assert done.exit_code == 2 and (
        done.stderr == f"rn50: {tmp_path}/profile.json: is an input of this command; give another --output\n")


@pytest.mark.parametrize(
    "options, environ, says",
    [(("-o", "/proc/nowhere"), {}, "/proc/nowhere: cannot be made"),
     (("--baseline", "/nowhere"), {}, "/nowhere/profile.json: cannot be read"),
     ((), {"DATADIR": "/nowhere"}, "/nowhere: No such file or directory; set DATADIR"),
     ((), {"FRAMEWORK": "caffe"}, "FRAMEWORK=caffe is not an implementation")])
def test_what_a_user_can_mend(tiny_environment, tmp_path, options, environ, says):
    done = rn50_profile({**tiny_environment, **environ}, *(options or ("-o", tmp_path)))
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr, done.stderr
