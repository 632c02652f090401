"""Read a YAML file that may come from a stranger (``read``). Aliases and deep nesting are refused, because
with them a small file can use much memory or time."""

from typing import Any

import yaml

from rn50 import files
from rn50.errors import UserError

LARGEST = 1 << 20
"""Bytes of the largest file that is read."""


class _Loader(yaml.BaseLoader):
    """Loader that keeps every scalar as text: numbers, dates and words like "no" are not converted. It
    refuses a key that a mapping has twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"a second {key.value}", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read(path: files.Path, remedy: str) -> Any:
    """Return the value of a YAML file: text, lists and mappings; None or "" for an empty file.

    Raises:
        UserError: as in ``files.read_text``, or the file is not plain YAML.
    """
    text = files.read_text(path, LARGEST, remedy)
    try:
        _refuse_bomb(text)
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UserError(path, f"{where}no plain YAML ({reason})", remedy) from error


def _refuse_bomb(text: str) -> None:
    """Raise MarkedYAMLError for a text with an alias or with deep nesting."""
    level = 0
    for event in yaml.parse(text, _Loader):
        # A list or mapping begins a level, and its end ends the level: True adds 1, and takes 1 away.
        level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        too_deep = f"nested deeper than {files.DEEPEST} levels" if level > files.DEEPEST else ""
        problem = "an alias" if isinstance(event, yaml.AliasEvent) else too_deep
        if problem:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
