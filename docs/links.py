"""MkDocs hook: replace a link to a file outside docs/ by its text, because the site has the pages of docs/
alone."""

import posixpath
import re
from typing import Any


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the text of a page without the links that leave docs/."""
    folder = posixpath.dirname(page.file.src_uri)

    def kept(link: "re.Match[str]") -> str:
        return link[1] if posixpath.normpath(posixpath.join(folder, link[2])).startswith("..") else link[0]

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)]+)\)", kept, markdown)
