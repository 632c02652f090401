"""Jinja environment of the HTML pages that rn50 writes: the report, and pages of other packages of rn50
(``in_folder_of``)."""

import functools
import pathlib
import re

import jinja2

import rn50
from rn50 import files
from rn50.results.report import plots
from rn50.terminal import safe


def _shown(value: object) -> object:
    """Return a value for a page: markup as it is, anything else as text. In text every control character but
    newline and tab is made visible, because HTML forbids it."""
    return value if hasattr(value, "__html__") else re.sub("[^\n\t]+", lambda part: safe(part[0]), str(value))


@functools.cache  # an environment keeps its compiled templates
def in_folder_of(module: str) -> jinja2.Environment:
    """Return the environment for the templates in the folder of ``module``, the ``__file__`` of a module. It
    also finds the templates of this folder, which pages share. Text is escaped; a name without a value is an
    error. Templates can use ``mark``, ``version``, and ``series``, the numbers of the colours of curves."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([pathlib.Path(module).parent, pathlib.Path(__file__).parent]),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"mark": files.MARK, "version": rn50.__version__, "series": range(plots.SERIES)}
    return environment
