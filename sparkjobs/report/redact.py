"""Replaces the names in a report: each gets a name of its own, the same one wherever it stands. Pure.

Replaced are hosts, addresses, client ids, racks, principals, and the folders of paths. Addresses are known by their
form. Every other name is known by its place: before a port or an address, after `//` or `host=`, in `EndPoint(...)` and
`Node(...)`, in a certificate's name, in an exception, or by its ending. A name that was learned so is replaced
everywhere, also where its surroundings do not give its kind. Of a line that was not understood the meaning of its words
is unknown: only its outline is kept.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

import msgspec

from sparkjobs.tables.silver import Row

_WORD: Final = r"[^\W_](?:[\w-]*[^\W_])?"
_NAME: Final = rf"{_WORD}(?:\.{_WORD})*"
#: stands for an address while names are learned
_ADDRESS: Final = "\0"
_QUOTE: Final = r"[\"'\\]*"
#: places where a name is that of a host
_LEARNED: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?<![\w.-])({_NAME})(?={_QUOTE}:\d{{2,5}}\b)",
        rf"//({_NAME})",
        rf"(?i)\bhost(?:[_ .-]?name)?{_QUOTE}\s*[=:]\s*{_QUOTE}({_NAME})",
        rf"(?:UnknownHost|NoRouteToHost)Exception: ({_NAME})",
        rf"({_NAME})\.?/{_ADDRESS}",
        rf"({_NAME})/<unresolved>",
        rf"(?:\b[Ss]ocket (?:connection )?(?:for|to|from)|\b(?:host\.name|connect) is overridden to) /?({_NAME})",
        rf"(?:EndPoint|Node)\((?:id=)?(?:-?\d+,\s*)?(?:(?:id|host)[=:]\s*)?{_QUOTE}({_NAME})",
        rf"(?i)\b(?:bootstrap[._]servers|(?:zookeeper[._])?connect(?:String)?|quorum)\s*[=:]\s*{_QUOTE}({_NAME})",
        r"(?i)(?<![\w.-])((?:[^\W_](?:[\w-]*[^\W_])?\.)+"
        r"(?:com|net|org|io|dev|cloud|internal|intern|intra|local|localdomain|lan|corp|svc|home|test|example|invalid))"
        r"(?![\w-])",
    )
)
_VALUE: Final = r"[^\s,;:()\[\]{}\"'\\=]+"
#: other names by which a reader could recognise a company, and the kind of each
_KINDS: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("rack", rf"(?i)\brack{_QUOTE}\s*[=:]\s*(?:Optional\[|Some\()?{_QUOTE}({_VALUE})"),
        ("folder", rf"(?i)\bconnect(?:String)?\s*[=:]\s*{_QUOTE}[^\s/]+/([\w./-]+)"),
        ("client", rf"(?i)\bclient[ _.-]?id{_QUOTE}\s*[=:]\s*{_QUOTE}({_VALUE})"),
        ("principal", rf"\b(?:User|Group|ServiceAccount):({_VALUE})"),
        ("principal", rf"(?i)\b(?:principal|user ?name|user|realm){_QUOTE}\s*[=:]\s*{_QUOTE}({_VALUE})"),
        ("principal", rf"\bauth(?:enticat|orizat)ionID=({_VALUE})"),
        ("principal", r"(?<!\w)(?:CN|OU|O|L|ST|C|DC|UID|EMAILADDRESS)=((?:\\.|[^,+;()\[\]{}\"'\\\n])+)"),
        ("principal", rf"(?<![\w.-])({_VALUE}@{_NAME})"),
    )
)
#: values that identify no user and no host: printed where no value was set, or the same in every company
_NOBODYS: Final = frozenset({"null", "none", "nil", "anonymous", "user", "-", "", "*", "localhost"})
_IPV4: Final = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)", re.ASCII)
_IPV6: Final = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f.]{0,15}){2,8}(?:%\w+)?(?![\w:])", re.ASCII)
#: an absolute path of two parts or more
_FOLDER: Final = re.compile(r"(?<![\w./:@-])(?:/[\w.@%+-]+){2,}")
#: the paths that Kafka and we keep in ZooKeeper, without a chroot before them
_ZNODE: Final = re.compile(
    r"/(?:brokers|controller|controller_epoch|admin|config|isr_change_notification|cluster|consumers|feature|klamm|"
    r"latest_producer_id_block|log_dir_event_notification|kafka-acl\w*|rpc|v1|metrics|healthz?)(?:/|$)"
)
#: words before a port that are no host: a place in a program, a time, a broker by its number
_NO_HOST: Final = re.compile(r"(?i)\d+|.*\.(?:scala|java|log|gz)|\d{4}-\d\d-\d\dT\d\d|epoch|id|port", re.ASCII)
_KAFKAS: Final = ("state", "change", "controller", "server", "kafka", "broker", "log", "gz", "out", "json", "copy")


class Redactor:
    """Knows nothing until it has `learn`ed all that it will see: a host's name may first stand where nothing tells."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._learned: dict[str, str] = {}  # in small letters, and its kind
        self._pattern: re.Pattern[str] | None = None

    def learn(self, texts: Iterable[str]) -> None:
        """In the order in which names are given."""
        for text in texts:
            plain = _IPV4.sub(_placeholder, _IPV6.sub(_placeholder, text))
            for pattern in _LEARNED:
                for found in pattern.finditer(plain):
                    if not _NO_HOST.fullmatch(found[1]):
                        self._learn(found[1], "host")
                        short = found[1].partition(".")[0]
                        if len(short) >= 3 and not short.isalpha():
                            self._learn(short, "host")
            for kind, pattern in _KINDS:
                for found in pattern.finditer(plain):
                    self._learn(found[1].strip(" ."), kind)
        longest_first = sorted(self._learned, key=lambda name: (-len(name), name))
        names = "|".join(re.escape(name) for name in longest_first)
        self._pattern = re.compile(rf"(?i)(?<![\w.-])(?:{names})(?![\w-]|\.[\w])") if names else None

    def __call__(self, text: str) -> str:
        text = _IPV4.sub(self._address, _IPV6.sub(self._address, text))
        text = _FOLDER.sub(self._folder, text)
        return text if self._pattern is None else self._pattern.sub(self._known, text)

    def path(self, path: str) -> str:
        """Returns the Kafka part of the file's name, behind a name for its folder."""
        whole = PurePath(path)
        parts = re.split(r"([._-])", whole.name)
        kept = [part if part in ("", ".", "_", "-", *_KAFKAS) or part.isdecimal() else "x" for part in parts]
        return f"{self._name(str(whole.parent), 'folder')}/{''.join(kept)}"

    def _learn(self, name: str, kind: str) -> None:
        if name.lower() not in _NOBODYS and not name.isdecimal() and _ADDRESS not in name:
            self._learned.setdefault(name.lower(), kind)

    def _known(self, found: re.Match[str]) -> str:
        name = found[0].lower()
        return self._name(name, self._learned.get(name, "host"))

    def _folder(self, found: re.Match[str]) -> str:
        return found[0] if _ZNODE.match(found[0]) else self.path(found[0])

    def _address(self, found: re.Match[str]) -> str:
        try:
            known = ipaddress.ip_address(found[0])
        except ValueError:
            return found[0]  # a time, a version
        return self._name(str(known), "host")

    def _name(self, what: str, kind: str) -> str:
        return self._names.setdefault(what, f"{kind}-{len(self._names) + 1}")


def _placeholder(found: re.Match[str]) -> str:
    try:
        ipaddress.ip_address(found[0])
    except ValueError:
        return found[0]  # a time, a version
    return _ADDRESS


def outline(line: str) -> str:
    """How a line looks, without its words and numbers."""
    return re.sub(r"\w", lambda found: "9" if found[0].isdigit() else "x", line)


def texts_in(tables: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """Every text of every row, names that users gave to topics among them."""
    for rows in tables.values():
        for row in rows:
            yield from (value for value in _values(row) if isinstance(value, str))


def redacted(rows: Sequence[Any], hide: Redactor) -> list[Any]:
    """Returns the rows with every text redacted; a `path` as a path."""
    found = []
    for row in rows:
        changed = {
            name: hide.path(value) if name == "path" else hide(value)
            for name, value in zip(row.__struct_fields__, _values(row), strict=True)
            if isinstance(value, str) and name not in ("file_id", "dt")
        }
        found.append(msgspec.structs.replace(row, **changed))
    return found


def _values(row: Row) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in row.__struct_fields__)
