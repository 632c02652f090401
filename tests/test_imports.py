"""No module imports itself in a circle, not inside a folder and not by an import within a function.

Processes: what is imported is known of a new process.
"""

import ast
import subprocess
import sys

import pytest

from rn50.files import ROOT


def imports(folder):
    """Module -> modules of the same folder that it imports anywhere."""
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in (ROOT / folder).rglob("*.py")
    }
    files = {
        name[: -len(".__init__")] if name.endswith(".__init__") else name: path
        for name, path in files.items()}
    found = {}
    for name, path in files.items():
        asked = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                asked |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                members = (f"{node.module}.{each.name}" for each in node.names)
                asked |= {each if each in files else node.module for each in members}
        found[name] = sorted(asked & set(files) - {name})
    return found


@pytest.mark.parametrize("folder", ["rn50", "implementations", "benchmarks"])
def test_no_module_imports_itself_in_a_circle(folder):
    graph, done = imports(folder), set()

    def visit(module, path):
        assert module not in path, " -> ".join((*path[path.index(module) :], module))
        if module not in done:
            for each in graph[module]:
                visit(each, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())
    assert len(done) > 5


def test_the_command_line_starts_without_numpy():
    """Its import takes as long as that of all the rest."""
    code = "import sys, rn50.cli; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
