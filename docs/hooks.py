"""MkDocs hooks: the site has the page JSON output, which is no file, and no links to files outside docs/."""

import pathlib
import posixpath
import re
import sys
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))


def on_files(files: Files, config: Any, **_: Any) -> None:
    """Add the page JSON output."""
    from docs import generate

    files.append(File.generated(config, "reference/json.md", content=generate.json_output()))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the text of a page without the links that leave docs/."""
    folder = posixpath.dirname(page.file.src_uri)

    def kept(link: "re.Match[str]") -> str:
        return link[1] if posixpath.normpath(posixpath.join(folder, link[2])).startswith("..") else link[0]

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)]+)\)", kept, markdown)
