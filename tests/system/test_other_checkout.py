"""A checkout that was copied, or moved, together with its .venv, whose programs lead to where it was made."""

import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig

import pytest

from rn50.files import ROOT

SCRIPTS = ("run_experiments.sh", "run_and_time.sh")


@pytest.fixture
def made(tmp_path):
    """A checkout with a .venv as an installation makes it, but that packages come from that of the tests."""
    folder = tmp_path / "made"
    for part in ("rn50", "implementations", "configs", "requirements"):
        shutil.copytree(
            ROOT / part, folder / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (*SCRIPTS, "pyproject.toml"):
        shutil.copy(ROOT / file, folder)
    programs = folder / ".venv" / "bin"
    packages = folder / ".venv" / sysconfig.get_path("purelib", "posix_prefix", {"base": "."})
    for each in (programs, packages):
        each.mkdir(parents=True)
    (programs / "python").symlink_to(pathlib.Path(sys.executable).resolve())
    (folder / ".venv" / "pyvenv.cfg").write_text(f"home = {pathlib.Path(sys.executable).resolve().parent}\n")
    (packages / "packages.pth").write_text(f"{sysconfig.get_path('purelib')}\n{folder}\n")
    (programs / "rn50").write_text(f"#!{programs}/python\nfrom rn50.__main__ import main\nmain()\n")
    (programs / "rn50").chmod(0o755)
    return folder


@pytest.fixture
def copied(made):
    """A copy of it with another learning rate, and code that says that it ran."""
    copy = made.parent / "copied"
    subprocess.run(["cp", "-a", made, copy], check=True)
    config = copy / "configs" / "config_DEMO_CPU.sh"
    config.write_text(re.sub("LR=.*", "LR=2.5", config.read_text()))
    with (copy / "rn50" / "cli" / "__init__.py").open("a") as code:
        code.write("\nprint('code of the copy')\n")
    return copy


def call(command, folder):
    """Its status, what it prints, and the lines of its standard error."""
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "DGXSYSTEM": "DEMO_CPU"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environ, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout, done.stderr.splitlines()


@pytest.mark.smoke("the program beside another checkout")
@pytest.mark.parametrize("folder", [".", "docs/deep"])
def test_a_copy_is_told_that_the_old_code_runs(made, copied, folder):
    (copied / folder).mkdir(parents=True, exist_ok=True)
    program = copied / ".venv" / "bin" / "rn50"
    status, out, err = call(f"{program} config show DEMO_CPU --json", copied / folder)
    assert status == 0 and "copy" not in out and '"2.5"' not in out
    assert err == [
        f"warning: {copied}: not the checkout whose code, configurations and results are used, which is "
        f"{made}; make setup there, or requirements/install.sh with the set that you use, makes its own"]


def test_only_the_command_itself_warns(copied):
    """Not the processes that it starts, nor what completes a line."""
    status, _, err = call(f"{copied}/.venv/bin/rn50 run DEMO_CPU", copied)
    assert status == 2 and sum(line.startswith("warning: /") for line in err) == 1, err
    asked = "_RN50_COMPLETE=bash_complete COMP_WORDS='rn50 ru' COMP_CWORD=1"
    assert call(f"{asked} {copied}/.venv/bin/rn50", copied) == (0, "plain,run\n", [])


def test_whose_own_code_runs_is_told_nothing(made, copied, tmp_path):
    for folder in (made, made / "rn50", tmp_path):
        assert call(f"{made}/.venv/bin/rn50 config show DEMO_CPU", folder)[2] == []
    for command in (".venv/bin/python -m rn50", f"PYTHONPATH={shlex.quote(str(copied))} .venv/bin/rn50"):
        status, out, err = call(f"{command} config show DEMO_CPU", copied)
        assert (status, err) == (0, []) and "code of the copy" in out and " 2.5 " in out


@pytest.mark.parametrize("is_moved", [False, True])
def test_scripts_run_the_code_beside_them(made, copied, is_moved):
    if is_moved:
        shutil.rmtree(made)
        assert call(".venv/bin/rn50 --version", copied)[0] in (126, 127)
    for script in SCRIPTS:
        status, out, err = call(f"{copied}/{script}", made.parent)
        assert status == 2 and "code of the copy" in out
        assert len(err) == 1 and "data/demo: No such file or directory; set DATADIR" in err[0]
