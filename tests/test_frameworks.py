"""The traits of the implementations, and an rn50 that names no framework.

Processes: what is imported is known of a new process.
"""

import ast
import re
import subprocess
import sys

import pytest

from rn50 import frameworks
from rn50.errors import UserError
from rn50.files import ROOT

NAMES = re.compile("mxnet|torch|paddle", re.IGNORECASE)
FORMATS_AND_FACTS = (
    "MXNET_HOROVOD_NUM_GROUPS",  # a variable of published configurations
    "nf5688m6_mxnet",  # a published result
    "NF5688M6_PYTORCH",  # a configuration
    "as MXNet RecordIO",  # a format of files, whoever reads it
)
FACTS = ("results/published.py",)


def named(path):
    """(line, text) of the names and strings of a file that are not docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bodies = [
        body for body in (getattr(node, "body", None) for node in ast.walk(tree)) if isinstance(body, list)]
    docstrings = {id(each.value) for body in bodies for each in body if isinstance(each, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value
        elif isinstance(node, (ast.Name, ast.arg, ast.FunctionDef, ast.ClassDef)):
            yield node.lineno, getattr(node, "id", None) or getattr(node, "arg", None) or node.name


def test_the_core_names_no_framework():
    core = [path for path in (ROOT / "rn50").rglob("*.py") if not path.as_posix().endswith(FACTS)]
    assert len(core) > 100
    found = [
        f"{path}:{line}: {text}" for path in core for line, text in named(path)
        if NAMES.search(text) and not any(allowed in text for allowed in FORMATS_AND_FACTS)]
    assert found == []


def imported(path):
    """(line, module) of everything that a file imports, at its top or later."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names)


@pytest.mark.parametrize("folder", ["rn50", "implementations"])
def test_what_a_submission_has_imports_no_tests(folder):
    """`rn50 package` exports these folders without tests/."""
    found = [
        f"{path}:{line}" for path in sorted((ROOT / folder).rglob("*.py")) for line, module in imported(path)
        if module.split(".")[0] == "tests"]
    assert found == []


def test_every_implementation_has_traits_that_fit_its_requirements():
    assert frameworks.names() == tuple(
        sorted(path.parent.name for path in (ROOT / "implementations").glob("*/engine.py")))
    assert sum(each.is_default for each in frameworks.every().values()) == 1
    for name, traits in frameworks.every().items():
        assert frameworks.traits(name) is traits and traits.name.lower() == name
        assert set(traits.requirements) == set(traits.precisions) <= {"cpu", "gpu"}
        for packages in (package for sets in traits.requirements.values() for package in sets):
            assert (ROOT / "requirements" / f"{packages}.txt").is_file()
        assert "eager" in traits.step_modes and "dali" in traits.input_libraries


@pytest.mark.parametrize("name", frameworks.names())
def test_nothing_is_imported_for_traits_and_advice(name):
    code = (
        f"import sys; from rn50 import frameworks; frameworks.traits({name!r}); "
        f"frameworks.unimported({name!r}, 'doctor'); print(*sys.modules)")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=str(ROOT), capture_output=True, text=True, check=True)
    assert not {"mxnet", "paddle", "torch", "nvidia", "horovod"} & {
        module.split(".")[0] for module in done.stdout.split()}


def test_an_unknown_framework():
    with pytest.raises(
        UserError, match="FRAMEWORK=abacus: no such implementation; there is mxnet, paddle, pytorch"
    ):
        frameworks.module("abacus", "train")
