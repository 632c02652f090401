"""Ways to spoil what rn50 reads: JSON values of any shape and size, records out of order, text in any
encoding."""

import copy
import json
from typing import Any

from hypothesis import strategies as st

DEEP = "@@DEEP@@"
"""Stands for a list in a list, 100,000 times: more than a recursive reader survives."""
_DEEP_TEXT = "[" * 100_000 + "]" * 100_000

_NASTY: list[Any] = [
    None, True, False, 0, -1, 1, 0.5, 3.5, -0.0, 10**400, -(10**400), 2**63, 1e308, -1e308, float("nan"),
    float("inf"), float("-inf"), "", "x", "1", "1e9", "NaN", "\ud800", "\x00", "\x1b[2J\x1b]0;owned\x07",
    "a\nrn50: forged", "[red]x[/red] :100:", "../../../../tmp/rn50-fuzz", "/dev/null", "~", ".", "..", "a/b",
    "x" * 5000, "$x^$", "9" * 5000, [], {}, [1], {"a": 1}, [[[[]]]], {"": {"": {}}}, DEEP, "success",
    "closed", "resnet", "demo data set, not an MLPerf result"]
nasty = st.sampled_from(_NASTY)
values = st.one_of(
    nasty,
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=6))


def _places(value, path=()):
    """Paths of all that is inside of a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in pairs:
        yield (*path, key)
        yield from _places(each, (*path, key))


@st.composite
def spoiled(draw, document, most=3):
    """A JSON value that differs from ``document`` in one to ``most`` places."""
    result = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, most))):
        places = list(_places(result))
        if not places:
            return draw(values)
        path = draw(st.sampled_from(places))
        inside = result
        for key in path[:-1]:
            inside = inside[key]
        if draw(st.integers(0, 3)):
            inside[path[-1]] = copy.deepcopy(draw(values))  # a later place may lie in it
        else:
            del inside[path[-1]]
    return draw(values) if draw(st.integers(0, 30)) == 30 else result


def dumped(value):
    """JSON with the deep list in it."""
    return json.dumps(value).replace(json.dumps(DEEP), _DEEP_TEXT)


@st.composite
def spoiled_records(draw, records):
    """Records of a log, one to four times changed, dropped, repeated or moved."""
    result = list(records)
    for _ in range(draw(st.integers(1, 4))):
        if not result:
            break
        index = draw(st.integers(0, len(result) - 1))
        how = draw(
            st.sampled_from(["value", "value", "field", "time", "drop", "repeat", "move", "cut", "shift all"])
        )
        if how == "value":
            result[index] = {**result[index], "value": draw(values)}
        elif how == "field":
            result[index] = draw(spoiled(result[index], 1))
        elif how == "time":
            result[index] = (
                {**result[index], "time_ms": draw(values)} if isinstance(result[index], dict)
                else draw(values))
        elif how == "drop":
            del result[index]
        elif how == "repeat":
            result.insert(draw(st.integers(0, len(result))), result[index])
        elif how == "move":
            result.insert(draw(st.integers(0, len(result) - 1)), result.pop(index))
        elif how == "cut":
            del result[index:]
        else:
            factor = draw(st.sampled_from([0, -1, 0.001, 1000, 1e300]))
            result = [
                {**each, "time_ms": each["time_ms"] * factor}
                if isinstance(each, dict) and _is_time(each.get("time_ms")) else each for each in result]
    return result


def _is_time(value):
    return (
        isinstance(value, (int, float)) and abs(value) < 1e300
    )  # Python multiplies no larger integer by a float


def log_text(records):
    """The text of a log."""
    return "".join(f":::MLLOG {dumped(each)}\n" for each in records)


@st.composite
def spoiled_bytes(draw, text):
    """A text in an encoding, mostly UTF-8, mostly whole."""
    content = text.encode(
        draw(st.sampled_from(["utf-8"] * 6 + ["utf-8-sig", "utf-16", "latin-1"])), errors="replace")
    how = draw(st.sampled_from(["whole"] * 6 + ["cut", "hole", "doubled", "lines", "nothing"]))
    if how == "cut":
        content = content[: draw(st.integers(0, len(content)))]
    elif how == "hole":
        at = draw(st.integers(0, len(content)))
        content = content[:at] + draw(st.binary(max_size=40)) + content[at:]
    elif how == "doubled":
        content += content
    elif how == "lines":
        content = content.replace(b"\n", draw(st.sampled_from([b"\r\n", b"\r", b"", b"\n\n", b"\x00\n"])))
    return b"" if how == "nothing" else content
