"""The web page that every broker serves at `/`: files, and no code of the server but how to find them.

Written by hand, without a build step; everything it needs is here, since it may load nothing from elsewhere.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import PurePath
from typing import Final

#: the files that may be served, by how the name ends
CONTENT_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@cache
def asset(name: str) -> tuple[bytes, str] | None:
    """Returns a file's content and its type; None if the page has no such file."""
    content_type = CONTENT_TYPES.get(PurePath(name).suffix)
    file = resources.files(__name__) / name
    if content_type is None or "/" in name or not file.is_file():
        return None
    return file.read_bytes(), content_type
