"""Templates of the pages that rn50 writes."""

import pathlib

import jinja2


def in_folder_of(module: str) -> jinja2.Environment:
    """Return the templates in the folder of ``module``, a ``__file__``. Text is escaped; a name without a
    value is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(pathlib.Path(module).parent)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
