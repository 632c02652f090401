"""axe-core, the checker of web accessibility: installed by npm as ``axe/package-lock.json`` pins it, and run
in a browser."""

import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from rn50 import files

_PINNED = pathlib.Path(__file__).with_name("axe")
_SCRIPT = "node_modules/axe-core/axe.min.js"


def script():
    """Its source, installed once in a cache folder of the user. Skips the test where npm or its registry is
    missing."""
    caches = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = caches / "rn50-tests" / f"axe-{files.sha256(_PINNED / 'package-lock.json')[:16]}"
    if not (folder / _SCRIPT).is_file():
        _install(folder)
    return (folder / _SCRIPT).read_text(encoding="utf-8")


def _install(folder):
    if shutil.which("npm") is None:
        pytest.skip("needs npm: apt-get install npm")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=str(folder.parent)) as half:
        for file in _PINNED.iterdir():
            shutil.copy(str(file), half)
        command = [
            "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1",
            "--fetch-timeout=30000"]
        done = subprocess.run(command, cwd=half, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            if "EINTEGRITY" in done.stderr:
                pytest.fail(f"npm ci: another axe-core than the pinned one: {done.stderr}")
            pytest.skip(f"needs npm's registry: npm ci failed: {done.stderr.strip().splitlines()[-1:]}")
        if not folder.exists():  # another worker may have installed it meanwhile
            shutil.copytree(half, str(folder))


def faults(browser):
    """The faults that it finds on the page the browser shows, with all of the page opened, as (impact, rule,
    elements)."""
    browser.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    browser.evaluate(script())
    found = browser.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then(result => result.violations)")
    return [(each["impact"], each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found]
