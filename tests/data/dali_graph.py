"""Reads what a DALI pipeline is made of out of its serialised form, or where no driver lets DALI serialise
it, out of Python."""

import struct
from collections.abc import Iterator
from typing import Any

NUMBERS = {"num_threads": 1, "batch_size": 2, "device_id": 8, "seed": 9}
"""Fields of dali/pipeline/dali.proto's PipelineDef."""

Operator = tuple[str, dict[str, Any]]


def serialised(pipeline: Any) -> list[Operator]:
    """(operator, arguments) in the order of the graph, out of ``pipeline.serialize()``; the first is the
    pipeline itself."""
    # PipelineDef has its operators in field 5; an operator its name in 1 and its arguments in 4; an argument
    # its name in 1, its type in 2, and its value in 3 (float), 4 (int), 5 (string), 6 (bool) or 7 (elements).
    content = list(_fields(pipeline.serialize()))
    graph = [
        ("pipeline",
         {name: _signed(value) for name, number in (("num_threads", 1), ("batch_size", 2), ("seed", 8))
          for field, value in content if field == number})]
    for field, value in content:
        if field == 5:
            inside = list(_fields(value))
            graph.append(
                (next(text.decode() for number, text in inside if number == 1),
                 dict(_argument(text) for number, text in inside if number == 4)))
    return graph


def _argument(message: bytes) -> tuple[str, Any]:
    content = list(_fields(message))
    first = dict(reversed(content))
    elements = [_argument(value)[1] for field, value in content if field == 7]
    value: Any = elements or None
    kind = first[2].decode()
    if not elements and kind == "float":
        value = first.get(3)
    elif not elements and kind == "string":
        value = first.get(5, b"").decode()
    elif not elements and kind == "bool":
        value = bool(first.get(6))
    elif not elements:
        value = _signed(first.get(4, 0))
    return first[1].decode(), value


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of every field of a protobuf message."""
    position = 0

    def varint() -> int:
        nonlocal position
        result = shift = 0
        while True:
            byte = message[position]
            position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7

    while position < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            size = varint()
            position += size
            yield key >> 3, message[position - size : position]
        else:
            assert key & 7 == 5, "no other kind of field is known"
            position += 4
            yield key >> 3, struct.unpack("<f", message[position - 4 : position])[0]


def in_python(pipeline: Any) -> list[Operator]:
    """(operator, arguments) as DALI's Python side holds them after it has checked their names and types; no
    driver is needed."""
    pipeline._build_graph()
    numbers = {
        "num_threads": pipeline.num_threads, "batch_size": pipeline.max_batch_size,
        "device_id": pipeline.device_id, "seed": pipeline.seed}
    operators = [node._op for node in pipeline._ops]
    return [
        ("pipeline", numbers),
        *((each.schema_name, {**each._init_args, "device": each.device}) for each in operators)]
