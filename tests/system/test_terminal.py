"""Every verb and both scripts as a person meets them: on a terminal of 80 columns, on a dumb one, and in a
pipe; three tables on a terminal of 200 columns too.

The tests of the other files run in pipes, where no progress bar is drawn.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from tests.support import campaigns, image_tree
from tests.support.typed import COLOR, CTRL_C, CURSOR, assert_plain, assert_well, in_pipe, on_terminal
from tests.system.job import RN50, ROOT, configuration_file, events

OK, FAULT = 0, 1
HOSTILE = "\x1b]0;owned\x07\x1b[2Jx\nrn50: forged [red]loud[/red] :100: \u202egnp.exe"
"""A title, a cleared screen, a second line, markup, an emoji code, text that runs backwards."""
AS_SHOWN = r"\x1b]0;owned\x07\x1b[2Jx\nrn50: forged [red]loud[/red] :100: \u202egnp.exe"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """Five results without the training."""
    return campaigns.make(tmp_path_factory.mktemp("campaign") / "results", "0" * 40, {})


@pytest.fixture(scope="module")
def another(tmp_path_factory):
    """Five more."""
    return campaigns.make(tmp_path_factory.mktemp("another") / "results", "0" * 40, {}, first=7)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images") / "tree"
    folder.mkdir()
    image_tree.make(folder)
    return folder


@pytest.fixture(scope="module")
def packed(images, tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed") / "out"
    assert in_pipe([*RN50, "pack", images, folder, "--workers", "1"]).status == OK
    return folder


VERBS = {
    "demo-data --help": ("", OK), "pack": ("{images} {tmp_path}/out --workers 1", OK),
    "unpack": ("{packed} {tmp_path}/folders", OK),
    "verify": ("{packed} --classes 5 --train 20 --val 10", OK), "doctor": ("", None),
    "config show": ("configs/config_DEMO_CPU.sh", OK),
    "bench storage": ("{packed} --seconds 1 --rounds 1", OK), "score": ("{campaign}", OK),
    "score --json": ("{campaign}", OK), "score --csv": ("{campaign}", OK),
    "check": ("{campaign} --ruleset 4.0.0", OK),
    "report": ("{campaign} --ruleset 4.0.0 -o {tmp_path}/report.html", OK),
    "compare": ("{campaign} {another}", OK), "package": ("{campaign} -o {tmp_path}/package", 2),
    "plan": ("--accelerators 8", OK), "plan --curve": ("--plot {tmp_path}/plan.svg", OK),
    "borrow": ("rcp/3264 configs/config_DGXA100.sh", OK), "borrow --suggest": ("--gbs 3264", OK),
    "search": ("nothing -o {tmp_path}/search", 2), "launch": ("", 2), "no-such-verb": ("", 2),
    "score no-such-file": ("", 2)}
"""What is typed behind a verb, where {name} is what a fixture makes, and how it ends; None: 0 or 1.
None of them trains."""
WIDE = ("score", "config show", "borrow --suggest")
"""Verbs whose tables grow with the terminal."""
SMOKE = {
    "score": "the table of a campaign", "config show": "that of a configuration", "pack": "a bar",
    "demo-data --help": "help"}
"""What make test runs of them, each for another kind of output."""


@pytest.fixture
def typed(request):
    """The command of a verb, and the statuses with which it may end."""

    def command(verb):
        behind, status = VERBS[verb]
        given = re.sub(r"\{(\w+)\}", lambda name: str(request.getfixturevalue(name[1])), f"{verb} {behind}")
        return [*RN50, *given.split()], {0, 1} if status is None else {status}

    return command


@pytest.mark.parametrize(
    "verb, columns",
    [*((each, 80) for each in VERBS if each not in SMOKE),
     *(pytest.param(each, 80, marks=pytest.mark.smoke(why)) for each, why in SMOKE.items()),
     *((each, 200) for each in WIDE)])
def test_a_verb_on_a_terminal(verb, typed, columns):
    command, statuses = typed(verb)
    assert_well(on_terminal(command, columns), statuses, columns)


@pytest.mark.parametrize("verb", ["pack", "check", "score --csv", "borrow --suggest"])
def test_a_verb_in_a_pipe(verb, typed):
    command, statuses = typed(verb)
    shown = in_pipe(command)
    assert_well(shown, statuses)
    assert_plain(shown)


@pytest.mark.parametrize("verb", ["pack", "check"])
def test_a_dumb_terminal_gets_lines_only(verb, typed):
    command, statuses = typed(verb)
    shown = on_terminal(command, TERM="dumb")
    assert_well(shown, statuses, 80)
    assert_plain(shown)


def test_without_colours(typed):
    command, statuses = typed("check")
    shown = on_terminal(command, NO_COLOR="1")
    assert_well(shown, statuses, 80)
    assert not COLOR.search(shown.raw)


def test_a_ci_job_with_a_terminal_keeps_every_line(typed):
    command, statuses = typed("pack")
    shown = on_terminal(command, CI="true")
    assert_well(shown, statuses, 80)
    assert not CURSOR.search(shown.raw)


@pytest.mark.parametrize(
    "arguments",
    [pytest.param(["run", "nowhere"], marks=pytest.mark.smoke("a message")), ["plan", "--accelerators", "8"]],
    ids=" ".join)
def test_a_sentence_is_folded_between_words_and_can_be_copied(arguments):
    shown, piped = on_terminal([*RN50, *arguments]), in_pipe([*RN50, *arguments])
    lines = [line for line in shown.lines if line]
    # The terminal gets spaces and no line break: the same words follow one another on the same lines.
    assert [line.split() for line in lines] == [line.split() for line in piped.lines if line]
    rows = [line[at : at + 80] for line in lines for at in range(0, len(line), 80)]
    words = {word for line in piped.lines for word in line.split()}
    assert len(rows) > len(lines) and {word for row in rows for word in row.split()} == words


def test_a_table_in_a_pipe_is_not_folded():
    shown = in_pipe([*RN50, "borrow", "--suggest", "--gbs", "3264", "--limit", "40"])
    assert sum(bool(re.match(r" ?\d+ .* (v\d\.\d|rcp)/[^/]+/[^/]+$", line)) for line in shown.lines) == 40
    shown = in_pipe([*RN50, "config", "show", "configs/config_DEMO_CPU.sh"])
    [line] = [line for line in shown.lines if line.split()[:1] == ["DALI_THREADS"]]
    assert line.split()[1] == "1" and "CPU threads of each rank" in line


@pytest.mark.parametrize("command", ["--help", "plan --curve --json"])
def test_a_reader_that_has_seen_enough_ends_it_silently(command):
    line = f"{' '.join(RN50)} {command} | head -n 1; echo ${{PIPESTATUS[0]}}"
    for _ in range(2):
        done = subprocess.run(["bash", "-c", line], cwd=str(ROOT), capture_output=True, text=True, timeout=60)
        assert done.stderr == ""
        assert done.stdout.splitlines()[-1] in ("0", "1", str(128 + signal.SIGPIPE))


@pytest.mark.parametrize("verb", ["pack", "bench storage"])
def test_ctrl_c_while_a_bar_is_shown(verb, typed, tmp_path):
    if verb == "pack":
        (tmp_path / "many").mkdir()
        image_tree.make(tmp_path / "many", train=4000)
        command, waited = [*RN50, "pack", tmp_path / "many", tmp_path / "out", "--workers", "1"], "packing"
    else:
        command, waited = [*typed(verb)[0][:-4], "--seconds", "60", "--rounds", "5"], "ETA"
    shown = on_terminal(command, keys=(waited, CTRL_C))
    assert_well(shown, {128 + signal.SIGINT})
    assert "rn50: stopped by SIGINT; the same command starts again" in shown.lines


@pytest.fixture
def hostile(tmp_path):
    """Results whose logs, file names and configuration say what a terminal would obey."""
    folder = campaigns.make(tmp_path / "results", "0" * 40, {})
    for log in folder.glob("result_*.txt"):
        records = events(log)
        for record in records:
            if record["key"] in ("submission_org", "submission_platform", "submission_status"):
                record["value"] = HOSTILE
            if record["key"] == "run_stop":
                record["metadata"]["status"] = HOSTILE
        log.write_text("".join(f":::MLLOG {json.dumps(record)}\n" for record in records))
        saved = json.loads(log.with_suffix(".json").read_text())
        saved["config"]["run"]["system"] = saved["config"]["run"]["platform"] = HOSTILE
        saved["packages"]["mxnet" + HOSTILE] = HOSTILE
        log.with_suffix(".json").write_text(json.dumps(saved))
    shutil.copytree(str(folder), str(tmp_path / HOSTILE.replace("/", "|")))
    return tmp_path


def assert_harmless(shown):
    assert "Traceback" not in shown.text and "RN50_DEBUG=1" not in shown.text, shown.text
    assert (
        "\x1b]" not in shown.raw and "\x1b[2J" not in shown.raw and "\x07" not in shown.raw
        and "\u202e" not in shown.raw)
    assert not [line for line in shown.lines if line.startswith("rn50: forged")]
    if "owned" in shown.text:
        assert "💯" not in shown.text
        assert "[red]loud" in shown.text.replace("\n", "") or "loud" not in shown.text


@pytest.mark.parametrize(
    "arguments",
    [["score"], ["check", "--ruleset", "4.0.0"], ["compare"], ["package", "-o", "{to}"],
     ["report", "--ruleset", "4.0.0", "-o", "{to}.html"]],
    ids=lambda arguments: " ".join(arguments[:2]))
def test_what_a_log_says_is_shown_and_not_obeyed(hostile, arguments):
    verb, *options = (each.format(to=hostile / "to") for each in arguments)
    evil = hostile / HOSTILE.replace("/", "|")
    folders = [hostile / "results", evil] if verb == "compare" else [evil]
    shown = on_terminal([*RN50, verb, *folders, *options], 200)
    assert_harmless(shown)
    assert "owned" in shown.text or verb == "report"


@pytest.mark.parametrize(
    "arguments",
    [["config", "show", "{config}"], ["doctor"], ["plan", "--accelerator", HOSTILE], ["launch"],
     ["no" + HOSTILE], ["score", HOSTILE]],
    ids=lambda arguments: " ".join(arguments[:2])[:16].split("\x1b")[0])
def test_what_a_configuration_or_an_argument_says_is_shown_and_not_obeyed(
    tmp_path, tiny_environment, arguments
):
    values = {
        **tiny_environment, "SUBMISSION_PLATFORM": HOSTILE, "DGXSYSTEM": HOSTILE, "DATADIR": HOSTILE,
        "MXNET_X": HOSTILE}
    config = configuration_file(tmp_path / "config_EVIL.sh", values)
    environment = (
        {"CONFIG_FILE": str(config)} if arguments == ["doctor"] else values if arguments == ["launch"] else {}
    )
    given = [each.format(config=config, to=tmp_path / "to") if "{" in each else each for each in arguments]
    shown = on_terminal([*RN50, *given], 200, **environment)
    assert_harmless(shown)


MEASURING = {
    "bench comm": ["--largest-mib", "1"], "bench input": ["--seconds", "1", "--rounds", "1"],
    "bench throughput": ["--seconds", "1", "--rounds", "1", "-o", "{to}"],
    "profile": ["--seconds", "1", "--rounds", "1", "--steps", "2", "-o", "{to}"],
    "tune input": ["{config}", "--seconds", "2"]}


@pytest.mark.parametrize("verb", MEASURING)
def test_a_verb_that_trains_on_a_terminal(verb, tmp_path, tiny_environment, with_sections):
    values = {**tiny_environment, "DGXNGPU": "2" if verb == "bench comm" else "1"}
    options = [each.format(to=tmp_path / "to", config=with_sections) for each in MEASURING[verb]]
    shown = on_terminal([*RN50, *verb.split(), *options], **values)
    assert_well(shown, {OK}, 80)


@pytest.fixture
def with_sections(tmp_path, tiny_environment):
    """A configuration in the form of ours, as rn50 tune and rn50 search rewrite it."""
    groups = {"hyperparameters": [], "run": [], "input pipeline": []}
    for name, value in tiny_environment.items():
        section = (
            "input pipeline" if name.startswith("DALI_") else "run" if groups["run"] or name == "DGXSYSTEM"
            else None)
        groups[section or "hyperparameters"].append(f"export {name}='{value}'\n")
    file = tmp_path / "config_SECTIONS.sh"
    file.write_text("".join(line for name, lines in groups.items() for line in (f"# --- {name}\n", *lines)))
    return file


@pytest.fixture
def small(tmp_path, memorised, tiny_environment):
    """A campaign of one run that reaches its target within seconds, as the environment of a script."""
    environment = {
        **tiny_environment, "DATADIR": str(memorised), "NUMEXAMPLES": "40", "NUMVALEXAMPLES": "40",
        "NUMEPOCHS": "60", "BATCHSIZE": "8", "LR": "1.0", "LABELSMOOTHING": "0", "CROP_AREA_MIN": "1",
        "EVAL_OFFSET": "2", "EVAL_PERIOD": "4"}
    config = configuration_file(tmp_path / "config_SMALL.sh", environment)
    python = os.path.dirname(RN50[0])
    return {
        "CONFIG_FILE": str(config), "RESULTS": str(tmp_path / "results"), "NEXP": "1",
        "PATH": f"{python}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    "command, columns",
    [("./run_experiments.sh", 80),
     pytest.param("rn50 run --runs 1", 80, marks=pytest.mark.smoke("the one campaign that trains"))])
def test_a_campaign_on_a_terminal(small, command, columns):
    typed = [*RN50, *command.split()[1:]] if command.startswith("rn50") else [command]
    shown = on_terminal(typed, columns, **small)
    assert_well(shown, {OK}, columns)
    for said in (
        "Ctrl-C is safe", "epoch  3: top-1", "img/s", "target reached", "4 of 4 passed", "1 run of 5",
        "Report ",
    ):
        assert said in shown.text
    assert "rn50 progress" not in shown.text
    assert ("run 1 of 1  " in shown.text) == command.startswith("rn50")  # the bar of the campaign
    again = on_terminal(typed, columns, **small)
    assert_well(again, {OK}, columns)
    assert "run 1 of 1: kept" in again.text


def test_a_run_on_a_terminal_and_ctrl_c(small, tmp_path):
    shown = on_terminal(["./run_and_time.sh"], **small, RESULT_FILE=str(tmp_path / "one.txt"))
    assert_well(shown, {OK}, 80)
    assert (tmp_path / "one.txt").is_file()
    shown = on_terminal(
        ["./run_and_time.sh"], keys=("img/s", CTRL_C), **small, RESULT_FILE=str(tmp_path / "two.txt"))
    assert_well(shown, {128 + signal.SIGINT}, 80)
    assert [line for line in shown.lines if line.startswith("rn50: stopped by SIGINT")], shown.raw[-900:]


def test_a_campaign_of_several_runs_and_ctrl_c(small):
    """The live view goes, the run is ended and says so, and the same command resumes."""
    shown = on_terminal([*RN50, "run", "--runs", "2"], keys=("run 2 of 2 ->", CTRL_C), **small)
    assert_well(shown, {128 + signal.SIGINT}, 80)
    assert [line for line in shown.lines if line.startswith("rn50: stopped by SIGINT")], shown.raw[-900:]
    report = pathlib.Path(small["RESULTS"]) / "report.html"
    again = on_terminal([*RN50, "run", "--runs", "2", "--json"], **small)
    assert "run 1 of 2: kept" in again.text
    said = " ".join(again.text.split())  # a sentence is folded between words
    assert report.is_file() and again.status == FAULT, again.raw
    assert "seed 7 is that of result_0.txt too" in said, again.raw  # the file sets SEED


@pytest.mark.skipif(not (ROOT / ".venv" / "whole").is_file(), reason="make demo would install .venv")
def test_make_demo_on_a_terminal(small):
    """The README's first command. Its data set is drawn, its one run is that of a smaller one."""
    shown = on_terminal(["make", "demo"], **small, DATADIR="")
    assert_well(shown, {OK}, 80)
    assert "1 run of 5" in shown.text and "Report " in shown.text


def test_a_search_on_a_terminal(with_sections, tmp_path, tiny_folder):
    """A baseline that misses its target: there is a bar, then a line that says so."""
    shown = on_terminal(
        [*RN50, "search", with_sections, "-o", tmp_path / "to", "--trials", "1", "--repeats", "1",
         "--seeds-to-confirm", "2"],
        DATADIR=str(tiny_folder))
    assert_well(shown, {OK, 2}, 80)
