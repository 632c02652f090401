"""Paths that the documentation names exist, and so do the functions and classes that it names beside them."""

import re

import pytest

from rn50.files import ROOT

PAGES = ["README.md", "CONTRIBUTING.md", "implementations/README.md",
         *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
PATH = re.compile(r"`((?:rn50|configs|implementations|tests|docs|requirements|benchmarks)/[\w./-]+?)/?`")
LINK = re.compile(r"\]\(([^)#:]+)\)")
MEMBER = re.compile(r"`(?:(\w+)\.)?(\w+)` in `((?:rn50|implementations)/[\w/<>]+\.py)`")


@pytest.mark.parametrize("page", PAGES)
def test_the_paths_of_a_page_exist(page):
    lines = [line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if "removed since" not in line]
    assert [path for line in lines for path in PATH.findall(line) if not (ROOT / path).exists()] == []
    here = (ROOT / page).parent
    assert [link for line in lines for link in LINK.findall(line) if not (here / link).exists()] == []


def test_the_members_of_the_architecture_are_where_it_says():
    found = MEMBER.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert len(found) > 15
    for owner, name, path in found:
        for framework in ("mxnet", "pytorch") if "<framework>" in path else ("",):
            text = (ROOT / path.replace("<framework>", framework)).read_text(encoding="utf-8")
            assert re.search(rf"^\s*(def|class) {name}\b", text, re.MULTILINE), (name, path)
            assert not owner or re.search(rf"^class {owner}\b", text, re.MULTILINE), (owner, path)
