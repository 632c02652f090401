"""Make the page JSON output from the records that verbs print (``rn50.printed``)."""

import inspect
import pathlib
import pydoc
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple, get_args, get_origin, is_typeddict

import click

from rn50 import docstrings, printed, rates
from rn50.printed import Mark, is_record, members

HEAD = """# JSON output

[`--json`](cli.md#json) prints these fields. `systems[].runs[].seed` reads: every element of the list
`systems` has a list `runs`, and every element of that a field `seed`. `<name>` stands for any name.
"""
TYPES = {"rate": rates.Rates, "comparison": rates.Comparison}
"""Records with a section of their own, beside those that verbs print."""
PLAIN = {str: "text", pathlib.Path: "text", int: "integer", float: "number", bool: "true or false"}
LISTS = ("borrow --suggest",)
BY_NAME = ("rcp",)
"""Verbs that print an object of records by name."""
Names = Mapping[type, str]
"""Records that have a section -> its name."""
Row = tuple[str, str, str]
"""Path, type and meaning of a field."""


class Section(NamedTuple):
    """What a verb prints, or a type of TYPES."""

    name: str
    about: str
    others: tuple[str, ...]
    """Sections whose fields are printed too."""
    rows: tuple[Row, ...]


def sections(verbs: Iterable[tuple[str, click.Command]]) -> Iterator[Section]:
    """Yield the sections of the page, TYPES first."""
    records: dict[str, type] = dict(TYPES)
    for verb, command in verbs:
        for option in command.params:
            for suffix, path in getattr(option, "records", {}).items():
                record = pydoc.locate(path)
                assert isinstance(record, type), path
                records[" ".join([*verb.split()[1:], *suffix.split()])] = record
    names = {record: name for name, record in records.items()}
    for name, record in records.items():
        if names[record] != name:
            yield Section(name, "", (names[record],), ())
            continue
        about = inspect.cleandoc(record.__doc__ or "").split("\n\n")[0].replace("``", "`")
        prefix = "[]." if name in LISTS else "<name>." if name in BY_NAME else ""
        rows = tuple(_of_record(record, prefix, names))
        yield Section(name, " ".join(about.split()), tuple(_printed_in(record, names)), rows)


def page(sections: Iterable[Section], table: Any) -> str:
    """Return the page. ``table`` makes the lines of a table."""
    lines = [HEAD]
    for section in sections:
        lines += [f"## {'Type ' * (section.name in TYPES)}`{section.name}`", ""]
        if section.about:
            lines += [f"{'A list. ' * (section.name in LISTS)}{section.about}", ""]
        for other in section.others:
            lines += [f"The fields of `{other}`{', and:' if section.rows else '.'}", ""]
        if section.rows:
            rows = ([f"`{path}`", *rest] for path, *rest in section.rows)
            lines += table(("field", "type", "meaning"), rows)
    return "\n".join(lines)


def _printed_in(record: Any, names: Names) -> list[str]:
    """Return the names of the records whose fields are printed among those of a record."""
    if is_typeddict(record):
        return []
    paths = (_of_path(record, path) for path in printed.paths(record).values())
    inline = (kinds for kinds, marks, _ in paths if Mark.INLINE in marks)
    return [names[kind] for kinds in inline for kind in kinds if kind in names]


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
    for name, path in printed.paths(record).items():
        kinds, marks, meaning = _of_path(record, path)
        if Mark.INLINE in marks:
            more = () if kinds[0] in names else _of_record(kinds[0], prefix, names)
        else:
            more = _of_type(
                kinds, prefix + name, meaning, names, ", if known" if Mark.IF_KNOWN in marks else ""
            )
        rows.update({row[0]: row for row in more})
    yield from rows.values()


def _of_path(record: type, path: Iterable[str]) -> tuple[tuple[Any, ...], tuple[Any, ...], str]:
    """Return types, marks and meaning of the value at a path, which is None where anything on its way is."""
    kinds: tuple[Any, ...] = (record,)
    null: set[Any] = set()
    for attribute in path:
        null |= {types.NoneType} & set(kinds)
        (owner,) = set(kinds) - null
        marks = printed.marks(owner, attribute)
        marked = members(printed.kind(owner, attribute))
        plain = (kind.__origin__ if get_origin(kind) is Annotated else kind for kind in marked)
        kinds = tuple(member for kind in plain for member in members(kind))
    kinds = tuple(mark for mark in marks if isinstance(mark, type)) or tuple(dict.fromkeys((*kinds, *null)))
    return kinds, marks, docstrings.of_attributes(owner).get(attribute, "")


def _of_type(kind: Any, path: str, meaning: str, names: Names, known: str = "") -> Iterator[Row]:
    """Yield the row of a field, or of what is in it."""
    possible = kind if isinstance(kind, tuple) else members(kind)
    inside = [member for member in possible if member is not types.NoneType]
    null = " or null" if len(inside) < len(possible) and not known else ""
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
