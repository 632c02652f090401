"""Paths, links and members that the documentation names exist; its generated parts are current; the site
builds.

Processes: git lists the files, MkDocs builds the site.
"""

import importlib.util
import re
import shutil
import subprocess
import sys

import pytest

from docs import generate
from rn50.files import ROOT
from rn50.settings import fields
from tests.support import tiers
from tests.support.four_epochs import write_result

PAGES = [
    "README.md", "CONTRIBUTING.md", "implementations/README.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
PATH = re.compile(r"`((?:rn50|configs|implementations|tests|docs|requirements|benchmarks)/[\w./-]+?)/?`")
LINK = re.compile(r"\]\(([^)#:]*)(?:#([\w-]+))?\)")
MEMBER = re.compile(r"`(?:(\w+)\.)?(\w+)` in `((?:rn50|implementations)/[\w/<>]+\.py)`")


def anchors(page):
    """Anchors of the headings of a page that MkDocs and GitHub call the same: MkDocs makes one hyphen of
    several, GitHub keeps them."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL),
        re.MULTILINE)
    words = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings]
    return {re.sub(r"[\s-]+", "-", each) for each in words} & {each.replace(" ", "-") for each in words}


@pytest.mark.parametrize("page", PAGES)
def test_the_paths_of_a_page_exist(page):
    file = ROOT / page
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if "removed since" not in line]
    assert [path for line in lines for path in PATH.findall(line) if not (ROOT / path).exists()] == []
    links = [
        (file.parent / path if path else file, anchor) for line in lines
        for path, anchor in LINK.findall(line)]
    assert [str(target) for target, _ in links if not target.exists()] == []
    assert [
        f"{target}#{anchor}" for target, anchor in links if anchor and anchor not in anchors(target)] == []


def test_an_anchor_that_is_dead_on_github_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# DEMO_CPU `--frameworks`\n\n## One H200\n", encoding="utf-8")
    assert anchors(page) == {"one-h200"}


def test_git_ignores_what_the_pages_tell_to_write():
    """Else a checkout in which somebody has followed them is not clean, and a run logs that."""
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    option = r"(?:-o|--(?:output|report|picture|plot|tensorboard))(?: |=)"
    written = set(re.findall(rf"{option}([a-zA-Z][\w./+=-]*[\w])", text)) - {"remount", "names"}
    written |= {"reproduction", "throughput", "profile", "curves", "data/tune", "site"}
    written = {name for name in written if not name.isupper()}
    assert {"both.html", "page.html", "before", "latency.svg", "rounded.onnx", "plan.svg"} <= written
    folders = {name if "." in name else f"{name.rstrip('/')}/" for name in written}
    command = ["git", "check-ignore", "--no-index", *sorted(folders)]
    done = subprocess.run(command, cwd=str(ROOT), capture_output=True, text=True)
    assert sorted(folders - set(done.stdout.splitlines())) == []


def test_every_page_is_reached_from_the_index():
    reached, ahead = set(), [ROOT / "docs" / "index.md"]
    while ahead:
        page = ahead.pop()
        reached.add(page)
        targets = [
            (page.parent / path).resolve() for path, _ in LINK.findall(page.read_text(encoding="utf-8"))
            if path]
        ahead += [each for each in targets if each.suffix == ".md" and each not in reached]
    assert [
        page for page in PAGES if page.startswith("docs/") and (ROOT / page).resolve() not in reached] == []


def test_the_members_of_the_architecture_are_where_it_says():
    found = MEMBER.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert len(found) > 15
    for owner, name, path in found:
        for framework in ("mxnet", "pytorch") if "<framework>" in path else ("",):
            text = (ROOT / path.replace("<framework>", framework)).read_text(encoding="utf-8")
            assert re.search(rf"^\s*(def|class) {name}\b", text, re.MULTILINE), (name, path)
            assert not owner or re.search(rf"^class {owner}\b", text, re.MULTILINE), (owner, path)


def test_every_claim_names_the_tier_of_its_proof():
    text = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").rsplit(" | ", 2) for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 40
    for _, proof, tier in rows:
        words = [word for command in re.findall(r"`pytest ([^`]*)`", proof) for word in command.split()]
        assert tier == (tiers.of_claim(words) if words else "by hand"), proof


def test_the_python_of_its_page_runs_as_printed(tmp_path, monkeypatch, capsys):
    write_result(tmp_path / "results" / "DEMO_CPU")
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    for block in blocks:  # each alone, as it is copied
        exec(compile(block, "python.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "8xBox 10000 3264 success" in printed and "result_4.txt 4 0.77" in printed
    assert "LR 10.5 10.5 borrowed" in printed and "BATCHSIZE=408" in (tmp_path / "config_MINE.sh").read_text()


@pytest.mark.slow
def test_what_is_generated_is_current():
    """``make reference`` writes it again."""
    for page, text in generate.written().items():
        assert page.read_text(encoding="utf-8") == text, page


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("needs the set docs: requirements/install.sh docs")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)], cwd=str(ROOT),
        capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_asks_nobody_for_anything(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20 and site / "reference" / "json.html" in pages
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert re.findall(r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//[^"]*', text) == []
        assert re.findall(r'<link[^>]* href="(?:https?:)?//[^"]*', text) == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser: apt-get install chromium")
def test_the_search_finds_without_a_server(site, tmp_path):
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}",
        "--virtual-time-budget=60000", "--dump-dom", f"{(site / 'index.html').as_uri()}?q=olympic"]
    assert "matching documents" in subprocess.run(command, capture_output=True, text=True, timeout=300).stdout


def test_the_values_of_a_variable_are_no_error():
    cells = [generate._variable(variable)[2] for _, _, variable in fields.variables()]
    assert [cell for cell in cells if re.match("is |must ", cell)] == []
