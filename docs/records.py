"""Make docs/reference/json.md from the records that verbs print (``rn50.printed``)."""

import inspect
import pathlib
import pydoc
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, get_args, get_origin, is_typeddict

import click

from rn50 import docstrings, rates
from rn50.printed import Field, Mark, fields, is_record, members

HEAD = """# JSON output

With `--json` a verb prints one JSON object (`rn50 borrow --suggest` a list) on standard output; warnings and
progress go to standard error. NaN and infinity are printed as `null`. Exit statuses are the same as without
`--json` ([command line](cli.md#exit-statuses)). `systems[].runs[].seed` reads: every element of the list
`systems` has a list `runs`, and every element of that a field `seed`. `<name>` stands for any name.

```sh
rn50 score results/DEMO_CPU --json |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["systems"][0]["olympic_minutes"])'
```
"""
TYPES = {"rate": rates.Rates, "comparison": rates.Comparison}
"""Records with a section of their own, beside those that verbs print."""
PLAIN = {str: "text", pathlib.Path: "text", int: "integer", float: "number", bool: "true or false"}
LISTS = ("borrow --suggest",)
Names = Mapping[type, str]
"""Records that a section names -> name."""
Row = tuple[str, str, str]
"""Path, type and meaning of a field."""


def page(verbs: Iterable[tuple[str, click.Command]], table: Any, end: str) -> str:
    """Return the page. ``table`` makes the lines of a table, ``end`` is the last line."""
    lines, sections = [HEAD], {f"Type `{name}`": record for name, record in TYPES.items()}
    for name, command in verbs:
        for option in command.params:
            for suffix, path in getattr(option, "records", {}).items():
                record = pydoc.locate(path)
                assert isinstance(record, type), path
                sections[f"`{' '.join([*name.split()[1:], *suffix.split()])}`"] = record
    named = {record: heading for heading, record in sections.items()}
    for heading, record in sections.items():
        lines += [f"## {heading}", ""]
        if named[record] != heading:
            lines += [f"The fields of {named[record]}.", ""]
            continue
        is_list = heading.strip("`") in LISTS
        about = inspect.cleandoc(record.__doc__ or "").split("\n\n")[0].replace("``", "`")
        lines += [f"{'A list. ' if is_list else ''}{' '.join(about.split())}", ""]
        names = {record: name.removeprefix("Type ").strip("`") for record, name in named.items()}
        rows = _of_record(record, "[]." if is_list else "", names)
        lines += table(("field", "type", "meaning"), ([f"`{path}`", *rest] for path, *rest in rows))
    return "\n".join([*lines, end, ""])


def _of_record(record: Any, prefix: str, names: Names) -> Iterator[Row]:
    """Yield the rows of a record, those of the records in it included, unless they have a name."""
    if is_typeddict(record):
        for name, kind in record.__annotations__.items():
            known = ", if known" if name in record.__optional_keys__ else ""
            yield from _of_type(
                kind,
                prefix + name,
                docstrings.of_attributes(record).get(name, docstrings.words(name)),
                names,
                known,
            )
        return
    rows: dict[str, Row] = {}
    for name, field in fields(record).items():
        field = field._replace(
            kinds=tuple(mark for mark in field.marks if isinstance(mark, type)) or field.kinds
        )
        if Mark.INLINE in field.marks:
            more = _of_record(field.kinds[0], prefix, names)
        else:
            more = _of_field(prefix + name, field, names)
        rows.update({row[0]: row for row in more})
    yield from rows.values()


def _of_field(path: str, field: Field, names: Names) -> Iterator[Row]:
    meaning = docstrings.of_attributes(field.owner).get(field.path[-1], "")
    return _of_type(field.kinds, path, meaning, names, ", if known" if Mark.IF_KNOWN in field.marks else "")


def _of_type(kind: Any, path: str, meaning: str, names: Names, known: str = "") -> Iterator[Row]:
    """Yield the row of a field, or of what is in it."""
    inside = [member for member in members(kind) if member is not types.NoneType]
    null = " or null" if len(inside) < len(members(kind)) and not known else ""
    if len(inside) > 1:
        yield path, " or ".join(PLAIN[member] for member in inside) + null + known, meaning
        return
    (one,) = inside
    if get_origin(one) is Annotated:
        one = next((mark for mark in one.__metadata__ if isinstance(mark, type)), one.__origin__)
    origin, arguments = get_origin(one), get_args(one)
    if one in PLAIN or one in names:
        yield path, (PLAIN.get(one) or names[one]) + null + known, meaning
        return
    if null:
        yield path, f"object{null}", meaning
    if is_record(one) or is_typeddict(one):
        yield from _of_record(one, f"{path}.", names)
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        key = get_args(arguments[0])[1] if get_origin(arguments[0]) is Annotated else "name"
        yield from _of_type(arguments[1], f"{path}.<{key}>", meaning, names)
    else:
        yield from _of_type(arguments[0], f"{path}[]", meaning, names)
