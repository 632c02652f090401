"""Logs as people have them: more than one run in a file, or a form in which nothing can be read. Every verb
that reads logs says so in one line, and makes no figure of them."""

import gzip
import json

import pytest
from click.testing import CliRunner

from rn50.cli import main
from rn50.errors import UserError
from rn50.results import parse
from tests.results.mutations import position
from tests.support import campaigns, imagenet_run
from tests.support.foreign_text import KEYS, print_all

START_MS = 1_700_000_000_000
AN_HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The lines of two runs, the second an hour after the first, and of one that began with the first."""
    folder = tmp_path_factory.mktemp("runs")
    starts = {"a": START_MS, "b": START_MS + AN_HOUR_MS, "c": START_MS + 400}
    return [
        imagenet_run.write(folder / f"{name}.txt", seed=seed, start_ms=start) .read_text()
        .splitlines(keepends=True) for seed, (name, start) in enumerate(starts.items(), 5)]


def middle(lines):
    return position(lines, "epoch_start", 17)


def time_ms(line):
    return json.loads(line.split(" ", 1)[1])["time_ms"]


def earlier(lines, ms):
    return [line.replace(str(time_ms(line)), str(time_ms(line) - ms)) for line in lines]


def in_turn(one, other):
    return [line for pair in zip(one, other, strict=True) for line in pair]


SEVERAL = {
    "a dead attempt and its relaunch": lambda a, b, c: [*a[: middle(a)], "Killed\n", *b],
    "one that died before its first epoch": lambda a, b, c: [*a[: position(a, "epoch_start")], *b],
    "one that died before its clock": lambda a, b, c: [*a[: position(a, "run_start")], *b],
    "one that died at once, and was started again": lambda a, b, c: [
        *a[: position(a, "run_start") + 1], *earlier(b, AN_HOUR_MS - 3_000)],
    "a run and a dead attempt": lambda a, b, c: [*a, *b[: middle(b)]],
    "five": lambda a, b, c: [*a, *b, *a, *b, *a], "a run twice": lambda a, b, c: [*a, *a],
    "the end of one and another": lambda a, b, c: [*a[middle(a) :], *b],
    "the beginning of one and the end of another": lambda a, b, c: [*a[: middle(a)], *b[middle(b) - 20 :]],
    "two at once, line by line": lambda a, b, c: in_turn(a, c),
    "two, of which one began in the other": lambda a, b, c: sorted(
        [*a, *earlier(b, AN_HOUR_MS - 600_000)], key=time_ms)}


@pytest.mark.parametrize("form", SEVERAL)
def test_a_log_of_several_runs_is_refused_by_its_line(runs, tmp_path, form):
    file = tmp_path / "result_0.txt"
    lines = SEVERAL[form](*runs)
    file.write_text("".join(lines))
    with pytest.raises(UserError) as refused:
        parse.read_log(file)
    assert refused.value.problem.startswith("more than one run in it: line ")
    assert refused.value.remedy == "keep each run in a file of its own"
    number = int(refused.value.problem.split()[7])
    assert refused.value.problem.split()[9].rstrip(",") in lines[number - 1]


@pytest.mark.parametrize("ranks", [1, 8])
def test_what_ranks_log_together_is_one_run(runs, tmp_path, ranks):
    file = tmp_path / "result_0.txt"
    file.write_text("".join(f"{rank}: {line}" for line in runs[0] for rank in range(ranks)))
    assert parse.read_log(file).status == "success"


def docker(text):
    return "".join(json.dumps({"log": line + "\n", "stream": "stdout"}) + "\n" for line in text.splitlines())


def columns(text, width):
    return "".join(line[:width] + "\n" for line in text.splitlines())


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 51234\n"
OLD = {
    "v0.5": "Beginning trial 1 of 1\n0: :::MLPv0.5.0 resnet 1541710225.58 (run.py:9) run_start\n",
    "v0.6": 'Beginning trial 1 of 1\n0: :::MLL 1556733699.504 run_start: {"value": null}\n'}
FORMS = {
    "docker": (lambda text: docker(text).encode(), "is JSON with a log in it, as docker has it; jq -rj .log"),
    "UTF-16": (lambda text: text.encode("utf-16"), "is UTF-16 text; iconv -f UTF-16 -t UTF-8"),
    "UTF-16 without a mark": (lambda text: text.encode("utf-16-be"), "is UTF-16 text"),
    "gzip": (lambda text: gzip.compress(text.encode()), "is compressed; unpack it"),
    "a pointer": (lambda text: LFS, "is a Git LFS pointer, not the log; git lfs pull fetches the log"),
    "v0.5": (lambda text: OLD["v0.5"].encode(), "is a log of round v0.5; rn50 reads those of v0.7 to v4.0"),
    "v0.6": (lambda text: OLD["v0.6"].encode(), "is a log of round v0.6; rn50 reads those of v0.7 to v4.0"),
    "80 columns": (lambda text: columns(text, 80).encode(), "its records are cut off; log without a limit"),
    "132 columns": (lambda text: columns(text, 132).encode(), "its records are cut off; log without a limit"),
    "single quotes": (
        lambda text: text.replace('"', "'").encode(),
        "no :::MLLOG line can be read: line 1: not an MLPerf record (JSONDecodeError")}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_in_which_no_record_can_be_read_is_named(runs, tmp_path, form):
    encode, says = FORMS[form]
    file = tmp_path / "result_0.txt"
    file.write_bytes(encode("".join(runs[0])))
    for verb in ("score", "borrow"):
        done = invoke(verb, str(file), *(["NF5688M6"] if verb == "borrow" else []))
        assert done.exit_code == 2 and done.stdout == ""
        assert f"result_0.txt: {says}" in done.stderr and len(done.stderr.splitlines()) == 1


def invoke(*arguments):
    return CliRunner(mix_stderr=False).invoke(main, arguments, env={"DGXSYSTEM": "", "CONFIG_FILE": ""})


VERBS = {
    "score": ("score", "{}"), "score --json": ("score", "{}", "--json"),
    "check": ("check", "{}", "--ruleset", "4.0.0"),
    "check --format github": ("check", "{}", "--ruleset", "4.0.0", "--format", "github"),
    "rcp": ("rcp", "{}"), "compare": ("compare", "{}", "{}/../whole"), "report": ("report", "{}"),
    "borrow": ("borrow", "{}", "NF5688M6"), "reproduce": ("reproduce", "{}", "--dry-run"),
    "watch": ("watch", "{}", "--json"), "package": ("package", "{}", "-o", "{}/tree")}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_says_it_in_one_line_and_has_no_figure_of_it(runs, tmp_path, verb):
    (tmp_path / "results").mkdir()
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "result_0.txt").write_text("".join(runs[1]))
    both = SEVERAL["a dead attempt and its relaunch"](*runs)
    (tmp_path / "results" / "result_0.txt").write_text("".join(both))
    done = invoke(*(word.format(tmp_path / "results") for word in VERBS[verb]))
    assert done.exit_code in (1, 2)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "result_0.txt" in line]
    assert (
        len(said) == 1
        and f"has init_start, after init_start in line {position(both, 'init_start') + 1}" in said[0])
    assert "minutes" not in done.stdout and "0.7" not in done.stdout
    assert [file.name for file in (tmp_path / "results").iterdir()] == ["result_0.txt"]


def test_the_next_step_of_several_results_names_them(runs, tmp_path):
    folders = [tmp_path / name for name in ("a", "b")]
    for folder, lines in zip(folders, runs[:2], strict=True):
        folder.mkdir()
        (folder / "result_0.txt").write_text("".join(lines))
    said = CliRunner().invoke(main, ["score", *map(str, folders)]).output.replace("\n", " ")
    assert "next: rn50 check" in said and "PATHS" not in said and str(folders[1]) in said.split("next:")[1]


@pytest.mark.parametrize(
    "verb", [("audit",), ("score",), ("check",), ("compare", "x"), ("rcp",), ("verify",), ("pack", "x")])
def test_an_empty_name_is_not_the_working_folder(tmp_path, monkeypatch, verb):
    monkeypatch.chdir(tmp_path)
    done = invoke(*verb, "")
    assert done.exit_code == 2 and done.stdout == "" and not [*tmp_path.iterdir()]
    assert done.stderr == "rn50: '': an empty name; name a file or a folder, . for the working folder\n"


@pytest.mark.usefixtures("official_checkers")
def test_no_text_of_a_log_or_a_name_is_a_command_or_a_control_byte(tmp_path):
    campaign = campaigns.make(tmp_path / "NF5688M6", "0" * 40, {})
    texts = dict.fromkeys(KEYS[:3], "##[add-mask]e\n::error::\ufe0f\x07")
    print_all(campaign, "::stop-commands::##[x]\x1b[2J", texts)
