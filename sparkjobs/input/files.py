"""The log files and their content: bronze. The identity of a file is the hash of its content, not compressed.

Local files only; `sparkjobs.engine.spark.file_access` opens remote ones through Spark, with the same survey. A file
that cannot be read never raises: its row names the trouble. Logs come from strangers: no link leads out of the folder
that was named, only regular files are opened, and a file with an endless line is not read.
"""

from __future__ import annotations

import codecs
import errno
import glob
import gzip
import os
import re
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Final, cast

import msgspec

from sparkjobs.parse.sniff import Sniffed, last_moment, sniff
from sparkjobs.tables.silver import BronzeFile

CHUNK_BYTES: Final = 1 << 20
#: every reader holds a line in memory; a request for 100,000 partitions in one line of Kafka's has 20 MB
LINE_MAX_BYTES: Final = 32 << 20
HEAD_BYTES: Final = 1 << 18
#: Spark reads a file in pieces; the lines above each piece are counted here, so that lines know their numbers
BLOCK_BYTES: Final = 32 << 20
#: the names searched for in a folder, which may hold reports, too; a file that is named outright is read under any name
LOG_NAMES: Final = re.compile(
    r"(?!report\.json$)(?!.*(gc|cleaner|authorizer|request)\.log).*\.(log|out|json)([.-].*)?$", re.ASCII
)
_KINDS: Final = (("state-change", "state-change"), ("controller", "controller"), ("server", "server"))
#: all but control characters: a text without them consists of ends of lines and tabs
_NO_CONTROLS: Final = bytes(range(0x20, 0x100))
#: `kafka_2.13-3.9.1` and `kafka-3.9.1` are installations: a version goes on with another number
_BROKER_IN_PATH = re.compile(r"(?:broker|kafka|node)[-_.]?(\d{1,9})(?!\.?\d)(?=[/_.-]|$)", re.ASCII)


#: how names of other file systems begin; a drive of Windows would be one, and is not supported
SCHEME: Final = re.compile(r"[a-zA-Z][\w+.-]*:/", re.ASCII)


class Zones(msgspec.Struct, frozen=True):
    """The time zone of a log without one: of its broker, or of all."""

    default: str = "UTC"
    by_broker: dict[int, str] = {}

    def of(self, broker: int | None) -> str:
        return self.default if broker is None else self.by_broker.get(broker, self.default)

    def besides(self, broker: int | None) -> tuple[str, ...]:
        """Returns the other brokers that may speak in a log of this broker, or in a log of unknown origin: the known
        ones, and `*` for all others."""
        own = self.of(broker)
        others = () if own == self.default else (f"*={self.default}",)
        known = ((one, zone) for one, zone in sorted(self.by_broker.items()) if one != broker)
        return (*others, *(f"{one}={zone}" for one, zone in known if others or zone != own))


class NoLogsError(Exception):
    """Nothing to read was named."""


class _EndlessLineError(Exception):
    """A line longer than LINE_MAX_BYTES."""


def find_logs(named: Iterable[str]) -> list[str]:
    """Returns files, the files in folders, and the matches of globs; each once, in the order of their names.

    A link that is named is followed. A link below a folder or of a glob stands for its file if that lies below the same
    folder; one that leads elsewhere stays in the list, and is not opened.
    """
    found: set[str] = set()
    for name in named:
        path = Path(name)
        if path.is_dir():
            inside = {name for one in path.rglob("*") if LOG_NAMES.match(one.name) for name in _inside(one, path)}
            if not inside:
                raise NoLogsError(f"no *.log file in {name}; name the files themselves if they are called otherwise")
            found |= inside
        elif path.exists():
            found.add(str(path.resolve()) if path.is_symlink() else name)
        else:
            root = _above_patterns(path)
            matching = [
                file
                for one in glob.glob(name, recursive=True)  # noqa: PTH207
                for file in _inside(Path(one), root)
            ]
            if not matching:
                raise NoLogsError(f"there is no {name}")
            found.update(matching)
    return sorted(found)


def _inside(path: Path, root: Path) -> Iterator[str]:
    """The file of that name, by its own name below the root; of one that lies elsewhere the link that leads there."""
    file, top = path.resolve(), root.resolve()
    if not file.is_relative_to(top):
        yield str(next((one for one in (path, *path.parents) if one.is_symlink()), path))
    elif file.is_file():
        yield str(root / file.relative_to(top))


def _above_patterns(path: Path) -> Path:
    """Returns the folder that a glob begins with."""
    parts = []
    for part in path.parts:
        if glob.has_magic(part):
            break
        parts.append(part)
    return Path(*parts)


def open_content(path: str) -> IO[bytes]:
    """Opens the content, whether the file is compressed or not: its first bytes say so, not its name. Raises OSError
    for a file that is not regular, and for a link: `find_logs` has followed the permitted ones."""
    raw = os.fdopen(_opened(path), "rb")
    try:
        is_gzip = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if not is_gzip:
            return raw
        content = gzip.GzipFile(fileobj=raw)
        content.myfileobj = cast(Any, raw)  # closed with it
        return cast(IO[bytes], content)
    except BaseException:
        raw.close()
        raise


def _opened(path: str) -> int:
    """Opens without waiting for a process that writes to a pipe."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(f"a link that leads out of what was named: {path}") from None
        raise
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(f"no regular file: {path}")
    return number


def survey(
    paths: Iterable[str],
    cluster: str,
    zones: Zones,
    *,
    layout: str | None = None,
    open_file: Callable[[str], IO[bytes]] = open_content,
) -> list[BronzeFile]:
    """One row per content, ordered by its hash; copies are further paths of one row."""
    return merged(_survey_one(path, cluster, zones, layout, open_file) for path in sorted(set(paths)))


def merged(files: Iterable[BronzeFile]) -> list[BronzeFile]:
    """One row per content, ordered by its hash."""
    rows: dict[str, BronzeFile] = {}
    for row in files:
        known = rows.get(row.file_id)
        rows[row.file_id] = row if known is None else msgspec.structs.replace(known, paths=(*known.paths, *row.paths))
    return [rows[file_id] for file_id in sorted(rows)]


def _survey_one(
    path: str, cluster: str, zones: Zones, layout: str | None, open_file: Callable[[str], IO[bytes]]
) -> BronzeFile:
    if not path.isascii() and (shown := os.fsencode(path).decode("utf-8", "backslashreplace")) != path:
        return _unnamed(shown, cluster, zones)
    digest, size_bytes, line_bytes = sha256(), 0, 0
    head, tail, trouble, seen, is_gzip = b"", b"", None, TextCheck(), False
    try:
        with open_file(path) as content:
            is_gzip = isinstance(content, gzip.GzipFile)
            while chunk := content.read(CHUNK_BYTES):
                digest.update(chunk)
                size_bytes += len(chunk)
                line_bytes = _line_bytes_after(chunk, line_bytes)
                seen.take(chunk)
                head = head if len(head) >= HEAD_BYTES else head + chunk
                tail = chunk if len(chunk) >= HEAD_BYTES else (tail + chunk)[-HEAD_BYTES:]
    except (OSError, EOFError, zlib.error) as error:
        trouble = f"{type(error).__name__}: {error}"
    except _EndlessLineError:
        trouble = f"line {seen.newlines + 1} is longer than {LINE_MAX_BYTES >> 20} MiB: no log, or a damaged one"
    status = "empty" if head in (b"", codecs.BOM_UTF8) else "read"
    if trouble is not None:
        status = "vanished" if trouble.startswith("FileNotFoundError") else "unreadable"
    is_whole = not tail or tail.endswith(b"\n")
    lines = head[:HEAD_BYTES].decode("utf-8-sig", "replace").split("\n")
    found = sniff(lines[:-1] or lines, layout)
    broker = _broker_of(path, found)
    zone = zones.of(broker)
    besides = () if found.layout in (None, "klamm") else zones.besides(broker)
    return BronzeFile(
        # a file that could not be read whole is identified by its name, because half of it may be equal to another
        file_id=digest.hexdigest() if status in ("read", "empty") else sha256(f"{status} {path}".encode()).hexdigest(),
        cluster=cluster,
        paths=(path,),
        size_bytes=size_bytes,
        kind=_kind_of(path, found),
        layout=found.layout,
        wrapper=found.wrapper,
        tz=zone,
        zones=besides,
        broker=broker,
        first_ts=found.first_moment(zones.of(broker if found.first_broker is None else found.first_broker)),
        last_ts=last_moment(tail.decode("utf-8", "replace").split("\n"), found, tz=zone, broker=broker, zones=besides),
        lines=seen.newlines + (0 if is_whole or status == "empty" else 1),
        blocks=tuple(seen.blocks),
        is_whole=is_whole,
        is_gzip=is_gzip,
        is_text=seen.is_text,
        status=status,
        trouble=trouble,
    )


def _line_bytes_after(chunk: bytes, line_bytes: int) -> int:
    """Returns how long the line is by now that goes on after this chunk, which is no longer than a line may be."""
    first = chunk.find(b"\n")
    if line_bytes + (len(chunk) if first < 0 else first) > LINE_MAX_BYTES:
        raise _EndlessLineError
    return line_bytes + len(chunk) if first < 0 else len(chunk) - chunk.rfind(b"\n") - 1


def _unnamed(path: str, cluster: str, zones: Zones) -> BronzeFile:
    """A file that no table, page or JVM can name."""
    return BronzeFile(
        file_id=sha256(f"unreadable {path}".encode()).hexdigest(),
        cluster=cluster,
        paths=(path,),
        size_bytes=0,
        kind="unknown",
        tz=zones.default,
        lines=0,
        is_whole=True,
        status="unreadable",
        trouble="its name is not UTF-8: give it another",
    )


class TextCheck:
    """Counts the lines, and checks that all is text, so that no reader has to look at every line again."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.newlines, self.is_text = 0, True
        self.blocks: list[int] = []  # how many newlines stand above each but the first
        self._left_bytes = BLOCK_BYTES  # of the present block

    def take(self, chunk: bytes) -> None:
        """Takes the next bytes, not more than a block."""
        if len(chunk) > self._left_bytes:
            self.blocks.append(self.newlines + chunk.count(b"\n", 0, self._left_bytes))
            self._left_bytes += BLOCK_BYTES
        self._left_bytes -= len(chunk)
        newlines, has_controls = _controls_in(chunk)
        self.newlines += newlines
        if self.is_text:
            try:
                self.is_text = not has_controls and "\ufffd" not in self._decoder.decode(chunk)
            except UnicodeDecodeError:
                self.is_text = False


@cache
def numpy_if_there() -> Any:
    """It looks at bytes five times as fast. To load it takes longer than to look at the bytes of a few files."""
    return None if find_spec("numpy") is None else import_module("numpy")


def _controls_in(chunk: bytes) -> tuple[int, bool]:
    """Returns how many newlines there are, and whether any other control character is that no text has."""
    if len(chunk) == CHUNK_BYTES and (numpy := numpy_if_there()) is not None:
        each = numpy.frombuffer(chunk, numpy.uint8)
        newlines = int(numpy.count_nonzero(each == ord("\n")))
        if numpy.count_nonzero(each < ord(" ")) == newlines:
            return newlines, False
    controls = chunk.translate(None, _NO_CONTROLS)  # one pass for both, ten times as fast as a search
    return controls.count(b"\n"), bool(controls.strip(b"\n\t\r"))


def _kind_of(path: str, found: Sniffed) -> str:
    if found.layout == "klamm":
        return "json"
    name = Path(path).name
    return next((kind for word, kind in _KINDS if word in name), "mixed" if found.layout else "unknown")


def _broker_of(path: str, found: Sniffed) -> int | None:
    """Returns the broker that its first lines name; if they name none, the owner of its folder."""
    if len(found.brokers) == 1:
        return next(iter(found.brokers))
    in_path = _BROKER_IN_PATH.findall(path)
    return int(in_path[-1]) if in_path and not found.brokers else None


def lines_of(content: IO[bytes]) -> Iterator[str]:
    """Divided by newlines alone; the last one may lack it. The mark of UTF-8 at a file's start is no part of a line."""
    rest, mark = b"", codecs.BOM_UTF8
    while chunk := content.read(CHUNK_BYTES).removeprefix(mark):
        mark = b""
        pieces = (rest + chunk).split(b"\n") if len(rest) < CHUNK_BYTES or b"\n" in chunk else [rest + chunk]
        rest = pieces.pop()
        for piece in pieces:
            yield piece.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


def accounted(files: Sequence[BronzeFile]) -> Mapping[str, int]:
    """Returns how many files by status, for the reader of a report."""
    return Counter(file.status for file in files)
