"""One version of rn50: in the package, in CITATION.cff and in CHANGELOG.md, which names what exists."""

import re

import pytest
import yaml

import rn50
from rn50.cli import main
from rn50.files import ROOT

CHANGES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
SINCE = re.sub(r"(?ms)^### Removed$.*?(?=^## )", "", CHANGES.partition("## [0.1.0]")[0])
"""What 0.2.0 and later changes say that there is."""


def test_the_citation_is_of_this_version_and_its_date():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    released = re.findall(r"^## \[([\d.]+)\] - ([\d-]+)$", CHANGES, re.MULTILINE)
    assert released[0] == (rn50.__version__, str(citation["date-released"]))
    assert citation["version"] == rn50.__version__


def test_the_changelog_names_verbs_targets_and_files_that_exist():
    verbs = set(re.findall(r"`rn50 (\w[\w-]*)", SINCE))
    assert len(verbs) > 15 and verbs <= set(main.commands)
    targets = set(re.findall(r"`make ([\w-]+)", SINCE))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert (
        targets and {each for each in targets if not re.search(rf"^{each}:", makefile, re.MULTILINE)} == set()
    )
    paths = re.findall(r"`((?:\w+/)+[\w./]*|[\w.]+\.(?:sh|sub|md|cff))`", SINCE)
    assert len(paths) > 4 and [each for each in paths if not (ROOT / each).exists()] == []


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([A-Z][A-Z_]{3,})[`=]", SINCE))))
def test_the_changelog_names_variables_that_are_read(name):
    reference = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    assert f"`{name}`" in reference or name in {"CONFIG_FILE", "DGXSYSTEM"}
