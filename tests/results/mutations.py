"""Ways to spoil the text of a log, as small functions on a valid one."""

import json

from rn50.benchmark import rules

ALL = tuple(f"result_{i}.txt" for i in range(rules.RUNS))


def position(lines, key, number=0):
    """Index of a record of a key: the first, or the one of this number, also from the end."""
    return [i for i, line in enumerate(lines) if f'"key": "{key}"' in line][number]


def on_lines(change):
    """A mutation of the text from one of the list of its lines."""

    def mutate(text):
        lines = text.splitlines(keepends=True)
        change(lines)
        return "".join(lines)

    return mutate


def delete(key, number=0):
    return on_lines(lambda lines: lines.pop(position(lines, key, number)))


def double(key, number=0):
    return on_lines(
        lambda lines: lines.insert(position(lines, key, number), lines[position(lines, key, number)]))


def move(key, to, number=0, to_number=0):
    """The record of ``key`` before that of ``to``."""

    def change(lines):
        line = lines.pop(position(lines, key, number))
        lines.insert(position(lines, to, to_number), line)

    return on_lines(change)


def change(key, number=0, **fields):
    """Other fields in a record; ``metadata`` is merged, and a None in it deletes."""

    def mutate(lines):
        i = position(lines, key, number)
        record = json.loads(lines[i].split(" ", 1)[1])
        metadata = {**record["metadata"], **fields.get("metadata", {})}
        record = {
            **record, **fields,
            "metadata": {name: value for name, value in metadata.items() if value is not None}}
        lines[i] = ":::MLLOG " + json.dumps(record) + "\n"

    return on_lines(mutate)


def value(key, new, number=0):
    return change(key, number, value=new)


def both(*mutations):
    def mutate(text):
        for mutation in mutations:
            text = mutation(text)
        return text

    return mutate


def insert(text_line, before):
    return on_lines(lambda lines: lines.insert(position(lines, before), text_line))


def join(key):
    """The record and the next on one line."""

    def change(lines):
        i = position(lines, key)
        lines[i] = lines[i].rstrip("\n") + lines.pop(i + 1)

    return on_lines(change)


def times(function):
    """A mutation of the time of every record, by its old time and its number."""

    def mutate(text):
        records = [json.loads(line.split(" ", 1)[1]) for line in text.splitlines()]
        first = records[0]["time_ms"]
        return "".join(
            ":::MLLOG " + json.dumps({**record, "time_ms": function(record["time_ms"], first)}) + "\n"
            for record in records)

    return mutate


def append(key, **metadata):
    record = {"namespace": "", "time_ms": 1_800_000_000_000, "key": key, "value": None, "metadata": metadata}
    return lambda text: f"{text}:::MLLOG {json.dumps(record)}\n"


def rewrite(folder, mutate, names=("result_1.txt",)):
    for name in names:
        text = (folder / name).read_text()
        assert mutate(text) != text
        (folder / name).write_text(mutate(text))
