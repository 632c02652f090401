"""Help: five groups on one screen; an example and one line for every verb."""

import shlex

import click
import pytest
from click.testing import CliRunner

from rn50.cli import main
from rn50.files import ROOT

SCREEN = 40
SHORT = 45
GROUPS = ["Set up and data:", "Run:", "Speed:", "Hyperparameters:", "Results and weights:"]


def verbs(command=main, path=()):
    """Yield (words, command) of every verb that help lists."""
    for name, each in command.commands.items():
        if isinstance(each, click.Group):
            yield from verbs(each, (*path, name))
        elif not each.hidden:
            yield (*path, name), each


VERBS = dict(verbs())


def rn50(*arguments, **options):
    return CliRunner(mix_stderr=False).invoke(main, [str(each) for each in arguments], **options)


def test_help_fits_a_screen_in_five_groups():
    lines = rn50("--help", terminal_width=80).stdout.splitlines()
    assert len(lines) <= SCREEN and max(map(len, lines)) <= 80
    assert [line for line in lines if line in GROUPS] == GROUPS
    listed = {line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")}
    assert {words[0] for words in VERBS} <= listed and not {"train", "launch"} & listed


@pytest.mark.parametrize("words", [(), *VERBS], ids=" ".join)
def test_every_verb_has_a_short_help(words):
    command = main
    for word in words:
        command = command.commands[word]
        assert command.short_help and len(command.short_help) <= SHORT, word


NEED_ONNX = ("export", "quantize")
EXAMPLES = [
    pytest.param(words, marks=pytest.mark.slow if " ".join(words) in NEED_ONNX else (), id=" ".join(words))
    for words in VERBS]


@pytest.mark.parametrize("words", EXAMPLES)
def test_every_verb_has_an_example_of_itself_and_json(words):
    command = VERBS[words]
    assert command.epilog and command.epilog.startswith("Example: ")
    typed = shlex.split(command.epilog[len("Example: ") :].split(";")[0])
    typed = typed[typed.index("rn50") :]
    assert tuple(typed[1 : 1 + len(words)]) == words
    with command.make_context(" ".join(words), typed[1 + len(words) :], resilient_parsing=False):
        pass  # it can be parsed
    assert any(isinstance(each, click.Option) and "--json" in each.opts for each in command.params)


@pytest.mark.parametrize("verb", ["launch", "train"])
def test_a_verb_that_scripts_call_has_an_example_too(verb):
    assert "Example: " in rn50(verb, "--help").stdout
    for arguments in ([], ["DEMO_CPU_PYTORCH", "--lr", "1"]):
        words = " ".join(arguments) or "DEMO_CPU"
        done = rn50(verb, *arguments, env=dict.fromkeys(("OPTIMIZER", "BATCHSIZE", "LR")))
        assert done.exit_code == 2 and done.stderr == (
            f"rn50: rn50 {verb}: scripts call it, without arguments; to train: rn50 run {words}\n")


def completed(*words):
    """Return what Tab offers after ``words``."""
    from click.shell_completion import ShellComplete

    return [
        item.value
        for item in ShellComplete(main, {}, "rn50", "_RN50_COMPLETE").get_completions(
            list(words[:-1]), words[-1])]


def test_tab_completes_names_of_configurations_and_published_sources():
    assert completed("bench", "input", "DEMO") == [
        "DEMO_CPU", "DEMO_CPU_OPEN", "DEMO_CPU_PADDLE", "DEMO_CPU_PYTORCH", "DEMO_GPU_OPEN",
        "DEMO_GPU_PYTORCH"]
    assert "v1.0/Inspur/nf5688m6_mxnet" in completed("borrow", "v1.0/Inspur")
    assert "rcp/4.0.0/3264" in completed("borrow", "rcp/4")
    for verb in ("compare", "reproduce"):  # where nothing but a result will do
        assert "v1.0/Inspur/nf5688m6_mxnet" in completed(verb, "v1.0/Inspur") and completed(verb, "r") == [
            "r"]
    assert completed("borrow", "rcp/3264", "NF5488") == ["NF5488A5"]
    assert completed("config", "show", "./my") == ["./my"]  # a path: the shell completes it


def test_a_group_of_verbs_has_an_example_too():
    groups = [each for each in main.commands.values() if isinstance(each, click.Group)]
    assert len(groups) > 2 and all("Example: rn50 " in rn50(each.name, "-h").stdout for each in groups)


def test_help_names_a_page():
    assert "docs/index.md" in rn50("--help").stdout and (ROOT / "docs" / "index.md").exists()
