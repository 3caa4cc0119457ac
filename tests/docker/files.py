"""Files into containers and out of them; no shared folder of the host is needed."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from docker.models.containers import Container


def put(container: Container, path: str, content: str | Path, mode: int = 0o644) -> None:
    """Copy a text, or a path of this machine with all below it. Its parent exists already."""
    at, packed = Path(path), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        if isinstance(content, Path):
            tar.add(content, arcname=at.name)
        else:
            entry, data = tarfile.TarInfo(at.name), content.encode()
            entry.size, entry.mode = len(data), mode
            tar.addfile(entry, io.BytesIO(data))
    assert container.put_archive(str(at.parent), packed.getvalue())


def take(container: Container, path: str, into: Path) -> None:
    """A folder with all below it, or a file."""
    chunks, _ = container.get_archive(path)
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
        tar.extractall(into, filter="data")
