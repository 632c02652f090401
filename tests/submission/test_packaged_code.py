"""The code of a package: what belongs to a submission, and runs by itself.

Processes: the code of a package runs without this checkout.
"""

import json
import os
import re
import subprocess
import sys

import pytest

from rn50.files import ROOT
from rn50.submission import source
from tests.support.campaigns import git

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the checkout")
FOLDERS = {"configs", "docs", "implementations", "requirements", "rn50"}
SCRIPTS = {"run.sub", "run_and_time.sh", "run_experiments.sh", "run_with_docker.sh"}
SET_UP = {"Dockerfile", "LICENSE", "Makefile", "README.md", "pyproject.toml"}
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
FOR_CONTRIBUTORS = {"CITATION.cff", "CONTRIBUTING.md"}


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package") / "code"
    source.export("HEAD", folder)
    return folder


def run(code, *command, **variables):
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("CONFIG_FILE", "DGXSYSTEM")},
        "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}", **variables}
    return subprocess.run(command, cwd=str(code), env=environment, capture_output=True, text=True)


def test_it_is_a_list_of_what_belongs_to_a_submission(code):
    assert {path.name for path in code.iterdir()} == FOLDERS | SCRIPTS | SET_UP
    files = [path.relative_to(code) for path in code.rglob("*") if path.is_file()]
    assert {str(path) for path in files} <= set(git(ROOT, "ls-files").splitlines())
    assert {path.suffix for path in files if path.parts[0] == "docs"} == {".md"}


def test_its_pages_lead_nowhere_but_to_files_for_contributors_and_images(code):
    lost = {
        link for page in [code / "README.md", *code.glob("docs/**/*.md")]
        for link in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()}
    assert {
        link for link in lost if os.path.basename(link) not in FOR_CONTRIBUTORS and "images/" not in link
    } == set()


@pytest.mark.parametrize("script", [*sorted(SCRIPTS - {"run.sub"}), "requirements/install.sh"])
def test_its_scripts_say_how_they_are_used(code, script):
    done = run(code, f"./{script}", "--help")
    assert (done.returncode, done.stderr) == (0, "") and script in done.stdout


@pytest.mark.slow
def test_one_run_by_its_entry_point(code, tiny_environment, tmp_path):
    log = tmp_path / "result_0.txt"
    (code / "configs" / "config_TINY.sh").write_text(
        "".join(f"export {name}='{value}'\n" for name, value in tiny_environment.items()))
    done = run(code, "./run_and_time.sh", DGXSYSTEM="TINY", RESULT_FILE=str(log), RN50_COMMIT="c0ffee")
    assert done.returncode in (0, 3), done.stderr  # 3: it misses the target
    assert "run_stop" in log.read_text()
    assert json.loads(log.with_suffix(".json").read_text())["commit"] == "c0ffee"
