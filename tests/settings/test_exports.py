"""Files that a shell sources are rendered in one place, and hold nothing but what was meant.

Processes: bash is the oracle.
"""

import ast
import re
import subprocess

import pytest

from rn50.errors import UserError
from rn50.files import ROOT
from rn50.settings import fields, libraries
from rn50.settings.writing import exported, remark

WRITERS = {
    "rn50/results/report/what_ran.py: repetition", "rn50/settings/named.py: write",
    "rn50/settings/writing.py: beginning", "rn50/settings/writing.py: section_text",
    "rn50/settings/writing.py: exported", "rn50/settings/writing.py: render",
    "rn50/speed/tuned_config.py: text",
    "rn50/submission/source.py: _script", "rn50/submission/source.py: configuration",
    "rn50/submission/source.py: write_scripts"}
"""Every function whose text a shell will source. One more needs a look at where its names and values come
from, and `exported` and `remark` for them."""
SHELL = re.compile(r"\A\s*export [A-Z{$]|\nexport |\A\s*export \Z|#!/usr/bin|shellcheck ")
HARMLESS = """
CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING CUDA_VISIBLE_DEVICES
FLAGS_paddle_num_threads
HOROVOD_CACHE_CAPACITY HOROVOD_CYCLE_TIME HOROVOD_FUSION_THRESHOLD HOROVOD_HIERARCHICAL_ALLREDUCE
HOROVOD_LOG_LEVEL HOROVOD_NUM_NCCL_STREAMS HOROVOD_STALL_CHECK_TIME_SECONDS
KMP_AFFINITY
MXNET_CPU_WORKER_NTHREADS MXNET_CUDNN_AUTOTUNE_DEFAULT MXNET_ENABLE_CUDA_GRAPHS MXNET_ENFORCE_DETERMINISM
MXNET_ENGINE_TYPE MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN_BWD MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN_FWD
MXNET_EXEC_BULK_EXEC_TRAIN MXNET_GPU_WORKER_NTHREADS MXNET_OPTIMIZER_AGGREGATION_SIZE
MXNET_SAFE_ACCUMULATION MXNET_USE_FUSION
NCCL_ALGO NCCL_BUFFSIZE NCCL_COLLNET_ENABLE NCCL_DEBUG NCCL_IB_DISABLE NCCL_IB_HCA NCCL_MAX_NCHANNELS
NCCL_MIN_NCHANNELS NCCL_NET_GDR_LEVEL NCCL_NTHREADS NCCL_P2P_DISABLE NCCL_PROTO NCCL_SHM_DISABLE
NCCL_SOCKET_IFNAME
OMP_NUM_THREADS OMP_PROC_BIND
TORCHINDUCTOR_MAX_AUTOTUNE
"""
"""Libraries' variables that somebody's result may set here: a number or a word, whatever the value."""


def sourced(line, name, **environ):
    """The value of a variable after bash has sourced a line."""
    script = f'{line}\nprintf %s "${name}"'
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, env=environ)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "value", ["1", "", "a b", "'", '"', "$(exit 3)", "`exit 3`", "\\", "a;b", "#", "~", "x${Y", "é", "*"])
def test_a_value_is_what_the_shell_gets(value):
    assert sourced(exported("X_1", value), "X_1") == value
    assert sourced(exported("X", value, overridable=True), "X") == value
    assert sourced(exported("X", value, overridable=True), "X", X="mine") == "mine"


@pytest.mark.parametrize(
    "name", ["", "1X", "X Y", "X;Y", "X\n", "X=1", "X[0]", "NCCL_$(exit 3)", "`a`", "X-Y", "É", "\udcff"])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(UserError, match="not the name of a variable and one line of text"):
        exported(name, "1")


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "\0", "\x1b[2J", "\ud800", "\udcff", "\x7f"])
def test_what_is_no_line_is_refused(value):
    with pytest.raises(UserError, match=r"^'X=.*not the name of a variable and one line of text") as refused:
        exported("X", value)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("text", ["a\nexit 3", "a\r\nexit 3\n#", "a\u2028exit 3", "\udcff\n", "x" * 1000])
def test_a_remark_is_one_line(text):
    line = remark(text)
    assert line.isprintable() and len(line) <= 200
    assert sourced(f"# {line}\nX=1", "X") == "1"


def test_every_writer_for_a_shell_is_known():
    found = set()
    for package in ("rn50", "implementations"):
        for file in (ROOT / package).rglob("*.py"):
            tree = ast.parse(file.read_text())
            functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
            told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for function in functions:
                for node in ast.walk(function):
                    text = node.value if isinstance(node, ast.Constant) and id(node) not in told else ""
                    renders = isinstance(node, ast.Name) and node.id == "exported"
                    if isinstance(text, str) and SHELL.search(text) or renders:
                        found.add(f"{file.relative_to(ROOT)}: {function.name}")
    advice = {"_driver", "_libraries", "write"}  # of doctors, to be typed; and weights that were exported
    ours = {place for place in found if place.startswith("rn50/")}
    assert ours == WRITERS
    assert {place.split(": ")[1] for place in found - ours} <= advice


def test_what_is_harmless_is_listed_here_by_hand():
    assert set(HARMLESS.split()) == libraries.HARMLESS
    assert not libraries.HARMLESS & fields.KNOWN_NAMES
    for name in libraries.HARMLESS:
        assert not re.search("^LD_|^PYTHON|^GIT_|^BASH|PATH|LIBRARY|PLUGIN|PRELOAD|FILE|_DIR|ARGS|CMD", name)
