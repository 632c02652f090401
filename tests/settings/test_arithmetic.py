"""Arithmetic as bash does it: bash itself is the oracle.

Processes: bash is the oracle.
"""

import subprocess

import pytest

from rn50.settings.shell import arithmetic

VALUES = {"A": "408", "B": "-7", "H": "0x1F", "E": ""}
EXPRESSIONS = [
    "408 * 8", "A*8", "871491 * A", "-7 / 2", "-7 % 3", "7 / -2", "H + E * 3", "((A)) - B",
    "9223372036854775807 + 1", "  ", "+-+3", "0x1f * (2 + -A) / B % 5", "-9223372036854775807 - 9",
    "0 % B + (A - 3 * B) * (A + 1) % 7"]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_agrees_with_bash(expression):
    said = subprocess.run(
        ["bash", "-c", f"echo $(({expression}))"], env=VALUES, stdout=subprocess.PIPE, check=True).stdout
    assert arithmetic.evaluate(expression, lambda name: VALUES[name]) == int(said)


@pytest.mark.parametrize(
    "expression",
    ["1 / 0", "1 % 0", "A = 3", "A += 1", "A++", "--A", "1.5 * 2", "2 ** -1", "(1", "1 2", "1 +", "A[0]",
     "08", "010", "2 ** 3", "7 // 2", "1 << 3", "3 > 2", "1 ? 2 : 3", "A(3)", "1_000", "not A", "1 ? 2",
     "$(id)", "X", "9" * 30, "(" * 300 + "1" + ")" * 300, "- " * 10_000 + "1"])
def test_what_is_no_plain_arithmetic_is_refused(expression):
    with pytest.raises(ValueError):
        arithmetic.evaluate(expression, lambda name: {**VALUES, "X": "A + 1"}.get(name, ""))
