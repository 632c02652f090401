"""Whatever rn50 is given to read, it answers: exit status 0 to 3, no fault, valid JSON, in bounded time and
memory.

make test-all tries a few examples of each property, make fuzz thousands.
"""

import contextlib
import json
import pathlib
import shutil
import tempfile

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from rn50.errors import UserError
from rn50.results import score
from rn50.settings.parsers import integer
from tests.conftest import EVAL_SAMPLES, TRAIN_SAMPLES
from tests.fuzz.mutations import dumped, log_text, nasty, spoiled, spoiled_bytes, spoiled_records
from tests.fuzz.victim import assert_answers, rn50
from tests.results import mutations
from tests.support import campaigns, imagenet_run
from tests.system.job import ROOT, events


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """Five results that everything accepts."""
    return campaigns.make(tmp_path_factory.mktemp("campaign") / "NF5688M6", "0" * 40, {})


@pytest.fixture(scope="module")
def records(campaign):
    return [events(campaign / f"result_{number}.txt") for number in range(5)]


@pytest.fixture(scope="module")
def sidecar(campaign):
    return json.loads((campaign / "result_0.json").read_text())


def folder_of(campaign, name):
    """A copy to spoil, in a folder that its context takes away."""
    target = pathlib.Path(name) / "results" / "NF5688M6"
    shutil.copytree(str(campaign), str(target))
    return target


ON_RESULTS = (
    ("score", "{results}", "--json"), ("score", "{results}"), ("score", "{results}", "--csv"),
    ("rcp", "{results}", "--passes", "{good}", "--json"), ("rcp", "{results}"),
    ("compare", "{results}", "{good}", "--json"), ("compare", "{good}", "{results}"),
    ("report", "{results}", "--ruleset", "4.0.0", "-o", "{here}/report.html"),
    ("package", "{results}", "-o", "{here}/to", "--json", "--ruleset", "4.0.0"),
    ("check", "{results}/result_0.txt", "--ruleset", "4.0.0", "--format", "sarif"),
    ("check", "{results}/result_0.txt", "--ruleset", "4.0.0", "--format", "github"),
    ("check", "{results}/result_0.txt", "--ruleset", "4.0.0", "--json"))


def tried(verb, **places):
    arguments = [each.format(**places) for each in verb]
    note(f"rn50 {' '.join(arguments)}")
    assert_answers(rn50(*arguments, cwd=places["here"]), "--json" in verb)


@given(data=st.data())
def test_logs(data, campaign, records):
    with tempfile.TemporaryDirectory() as name:
        results = folder_of(campaign, name)
        for number in data.draw(st.sets(st.integers(0, 4), min_size=1, max_size=2)) | {0}:
            text = log_text(data.draw(spoiled_records(records[number])))
            (results / f"result_{number}.txt").write_bytes(data.draw(spoiled_bytes(text)))
        tried(data.draw(st.sampled_from(ON_RESULTS)), results=results, good=campaign, here=name)


@given(data=st.data())
def test_what_is_saved_beside_a_log(data, campaign, sidecar):
    with tempfile.TemporaryDirectory() as name:
        results = folder_of(campaign, name)
        content = data.draw(spoiled_bytes(dumped(data.draw(spoiled(sidecar)))))
        for number in range(data.draw(st.sampled_from([1, 5]))):
            (results / f"result_{number}.json").write_bytes(content)
        tried(data.draw(st.sampled_from(ON_RESULTS[:-1])), results=results, good=campaign, here=name)
        assert not list(pathlib.Path(name).glob(".rn50*")) and not pathlib.Path("/tmp/rn50-fuzz").exists()


COMPARED = (
    ("seed",),
    *(
        ("config", "hyperparameters", name)
        for name in ("batch_size", "learning_rate", "warmup_epochs", "num_epochs", "momentum", "weight_decay")
    ),
    ("config", "run", "ranks_per_node"), ("config", "run", "nodes"), ("config", "data", "train_samples"),
    ("config", "data", "eval_samples"), ("config", "data", "width"))
"""Numbers of a sidecar file that its log says or implies."""


@given(data=st.data())
def test_a_sidecar_that_contradicts_its_log_is_refused(data, campaign):
    path = data.draw(st.sampled_from(COMPARED))
    with tempfile.TemporaryDirectory() as name:
        results = folder_of(campaign, name)
        for number in range(data.draw(st.sampled_from([1, 5]))):
            file = results / f"result_{number}.json"
            saved = json.loads(file.read_text())
            section = saved
            for key in path[:-1]:
                section = section[key]
            old = section[path[-1]]
            other = st.integers(1, 2**31) if isinstance(old, int) else st.floats(1e-9, 1e9)
            section[path[-1]] = data.draw(other.filter(lambda new, old=old: new != old))
            file.write_text(json.dumps(saved))
        [system] = score.score([results])
        assert not system.valid and system.olympic_minutes


@given(data=st.data())
def test_a_timeline_that_is_shortened_is_refused(data, campaign):
    """Epochs from the fourth on take less than a third of their time, or the last are not there."""
    with tempfile.TemporaryDirectory() as name:
        results = folder_of(campaign, name)
        if data.draw(st.booleans()):
            begin = data.draw(st.integers(3, 34))
            end = data.draw(st.integers(begin + 1, 35))
            factor = data.draw(st.floats(0, 0.3))
            from_ms, to_ms = (imagenet_run.EPOCH_MS * epoch + 1000 for epoch in (begin, end))

            def faster(t, first):
                inside = min(max(t - first - from_ms, 0), to_ms - from_ms)
                return t - round(inside * (1 - factor))

            mutate = mutations.times(faster)
        else:
            missing = data.draw(st.integers(1, 34))  # one without any is of somebody who logs blocks alone
            keys = ("epoch_start", "epoch_stop")
            mutate = mutations.both(*[mutations.delete(key, -1) for key in keys] * missing)
        mutations.rewrite(results, mutate, data.draw(st.sampled_from([("result_2.txt",), mutations.ALL])))
        [system] = score.score([results])
        assert not system.valid and system.olympic_minutes


YAML = (
    "cooling: air\n", "a: &a [x]\nb: *a\n", "a: &a [1]\n" + "b: &a [*a, *a]\n" * 40, "[" * 50_000,
    "- " * 50_000 + "x\n", "!!x y\n", "cooling: !!python/object/apply:os.system [true]\n",
    "system_name: ../../x\n", "? [a]\n: b\n", "\t\n", "%YAML 9.9\n---\n", "hw_notes: |\n  a\n  b\n",
    "submitter: \ud7ff\n")


@given(data=st.data())
def test_the_description_of_a_system(data, campaign):
    with tempfile.TemporaryDirectory() as name:
        results = folder_of(campaign, name)
        text = "".join(data.draw(st.lists(st.sampled_from(YAML) | st.text(max_size=30), max_size=4)))
        (results / "system.yaml").write_bytes(data.draw(spoiled_bytes(text)))
        tried(ON_RESULTS[6], results=results, good=campaign, here=name)


NAMES = (
    "LR", "BATCHSIZE", "WARMUP_EPOCHS", "NUMEPOCHS", "WIDTH", "NUMCLASSES", "DALI_THREADS",
    "DALI_PREFETCH_QUEUE", "IMAGE_SIZE", "DGXNGPU", "DGXNNODES", "SEED", "MOM", "WD", "OPTIMIZER", "DATADIR",
    "HOSTS", "OMP_NUM_THREADS", "FRAMEWORK", "PRECISION", "EVAL_PERIOD", "DECAY_EPOCHS", "NUMEXAMPLES",
    "NCCL_X", "NO_SUCH")
TEXTS = st.one_of(
    st.sampled_from(
        ["", "0", "-1", "1e300", "1e9", "nan", "inf", "1_0", "\uff11\uff12", "0x10", "2.0", " 3 ", "1,5",
         "a b", "$((1+1))", "$((9**9**9))", "${X:-3}", "${LR}", "$(true)", "`true`", "'", '"', "\\",
         "\x1b[2J", "#", "1;", "10" * 400, "a" * 20_000]),
    st.integers().map(str), st.floats().map(str), st.text(alphabet="0123456789.eE+-_ xX", max_size=12))
LINES = st.one_of(
    st.tuples(st.sampled_from(NAMES), TEXTS).map(lambda pair: f"export {pair[0]}={pair[1]}"),
    st.sampled_from(
        [". ./other.sh", "source nothing.sh", ". " + "a" * 50_000, "exit 0", "exit 3", "set -e; false",
         "return 1", "if true; then", "fi", "export", "export =", "\ufeffexport LR=1", "export LR",
         "unset LR", "LR=(1 2)", "#" * 1000, "cat <<X", "X"]))
ON_CONFIGURATIONS = (
    ("config", "show", "{config}", "--json"), ("config", "show", "{config}"),
    ("borrow", "{config}", "{good}", "--json"), ("borrow", "rcp/3264", "{config}", "--json"),
    ("borrow", "{config}", "{good}", "-o", "{here}/new.sh"))


@given(data=st.data())
def test_configurations(data):
    good = ROOT / "configs" / "config_NF5688M6.sh"
    lines = good.read_text().splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        lines.insert(data.draw(st.integers(0, len(lines))), data.draw(LINES))
    with tempfile.TemporaryDirectory() as name:
        config = pathlib.Path(name) / "config_X.sh"
        config.write_bytes(data.draw(spoiled_bytes("\n".join(lines) + "\n")))
        tried(data.draw(st.sampled_from(ON_CONFIGURATIONS)), config=config, good=good, here=name)


ON_NUMBERS = (
    ("plan", "--accelerators", "{x}", "--json"),
    ("plan", "--accelerators", "8", "--global-batch-size", "{x}", "--json"),
    ("plan", "--accelerators", "8", "--global-batch-size", "3264", "--images-per-second", "{x}", "--json"),
    ("plan", "--accelerator", "{x}", "--json"), ("borrow", "--suggest", "--gbs", "{x}", "--json"),
    ("borrow", "{x}"), ("borrow", "--suggest", "--gbs", "3264", "--limit", "{x}", "--json"),
    ("bench", "storage", "{x}", "--json"), ("score", "{x}", "--json"), ("verify", "{x}", "--json"),
    ("report", "{x}"), ("check", "{x}", "--json"),
    ("borrow", "rcp/3264", "NF5688M6", "--gbs", "{x}", "--json"), ("demo-data", "{here}/x", "--scale", "{x}"))


PLACES = st.sampled_from(["rcp/0", "rcp/-1", "v1.0//", "/dev/stdin", "/dev/null", "/", "/proc/self/mem"])


@given(st.sampled_from(ON_NUMBERS), TEXTS | st.text(max_size=10) | PLACES)
def test_arguments(verb, text):
    given_text = text.replace("\x00", "").encode("utf-8", errors="replace").decode()
    if given_text.startswith("-"):
        given_text = f" {given_text}"
    with tempfile.TemporaryDirectory() as name:
        arguments = [each.replace("{x}", given_text).replace("{here}", name) for each in verb]
        note(f"rn50 {arguments}")
        with contextlib.suppress(ValueError):
            if "demo-data" in verb and 1 <= integer(given_text.strip()) <= 16:
                return  # that generates a data set
        assert_answers(rn50(*arguments, cwd=name), "--json" in verb)


@pytest.fixture(scope="module")
def verified(tiny_folder, tmp_path_factory):
    """The tiny data set with the files that rn50 writes beside it."""
    folder = tmp_path_factory.mktemp("verified") / "data"
    shutil.copytree(str(tiny_folder), str(folder))
    return folder


@given(data=st.data())
def test_data_sets(data, verified):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "data"
        shutil.copytree(str(verified), str(folder))
        target = folder / data.draw(
            st.sampled_from(sorted(each.name for each in folder.iterdir() if each.is_file())))
        content = target.read_bytes()
        if target.suffix == ".json":
            content = data.draw(spoiled_bytes(dumped(data.draw(spoiled(json.loads(content))))))
        elif target.suffix == ".idx":
            rows = content.decode().splitlines()
            for _ in range(data.draw(st.integers(1, 3))):
                at = data.draw(st.integers(0, len(rows) - 1))
                odd = [rows[0], "", "1", "x\ty", f"{at}\t{10**30}", f"{at}\t-8", "9" * 5000 + "\t0"]
                rows[at] = data.draw(st.sampled_from(odd))
            content = data.draw(spoiled_bytes("\n".join(rows) + "\n"))
        else:
            at = data.draw(st.integers(0, len(content)))
            piece = data.draw(st.binary(max_size=64))
            content = content[:at] + piece + content[at + data.draw(st.sampled_from([0, len(piece), 4096])) :]
        target.write_bytes(content)
        more = data.draw(st.sampled_from([(), ("--full",)]))
        counts = ("--classes", "10", "--train", str(TRAIN_SAMPLES), "--val", str(EVAL_SAMPLES))
        end = rn50(
            "verify", folder, "--json", "--workers", "1", *more, *data.draw(st.sampled_from([(), counts])))
        assert_answers(end, True)


@given(data=st.data())
def test_the_journal_of_a_search(data):
    from rn50.hyperparameters.search.journal import Journal

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        lines = [
            {"search": {"config": {"LR": "3.0"}, "data": {}, "options": {}}},
            {"trial": 0, "point": [3.0, 32, 1, 5e-5, 12, None], "stage": "a stage", "seed": 5},
            {"trial": 0, "state": "finished", "value": 7.2, "seconds": 1.5},
            {"confirmation": {"points": {"winner": [3.0, 32, 1, 5e-5, 12, None]}, "seeds": {"winner": [1]}}}]
        drawn = data.draw(spoiled(lines))
        text = "".join(dumped(each) + "\n" for each in (drawn if isinstance(drawn, list) else [drawn]))
        (folder / "journal.log").write_bytes(data.draw(spoiled_bytes(text)))
        try:
            Journal(folder)
        except UserError as error:
            assert str(folder) in str(error)


@given(st.lists(nasty, max_size=3), st.sampled_from(["score", "check", "report", "compare", "package"]))
def test_names_of_files(contents, verb):
    """Folders that hold what nobody expects under the names of results."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "$x^$ [red]\udcff"
        folder.mkdir()
        for number, content in enumerate(contents):
            (folder / f"result_{number}.txt").write_text(dumped(content), errors="replace")
        (folder / "result_7.txt").mkdir()
        (folder / "result_8.txt").symlink_to(folder / "result_8.txt")
        options = {"report": ("-o", f"{name}/r.html"), "package": ("-o", f"{name}/to")}.get(verb, ())
        assert_answers(rn50(verb, folder, *((folder,) if verb == "compare" else ()), *options), False)
