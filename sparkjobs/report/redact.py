"""Hosts and addresses out of a report: each gets a name of its own, the same one wherever it stands. Pure.

Addresses are known by their form. A host's name is known by where it stands (before a port, after `//` or `host=`, in
an exception), or by its ending; a name that was learned so is replaced everywhere, also where nothing around it says
what it is. Folders are often called after hosts, so of a path only the file's own name stays.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

import msgspec

from sparkjobs.schemas import Row

_NAME: Final = r"[A-Za-z0-9](?:[\w-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[\w-]*[A-Za-z0-9])?)*"
#: places where a name is that of a host
_LEARNED: Final = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        rf"(?<![\w.-])({_NAME})(?=:\d{{2,5}}\b)",
        rf"//({_NAME})",
        rf"(?i)\bhost(?:[_ -]?name)?[\"']?\s*[=:]\s*[\"']?({_NAME})",
        rf"(?:UnknownHost|NoRouteToHost)Exception: ({_NAME})",
        rf"({_NAME})/(?=\d{{1,3}}(?:\.\d{{1,3}}){{3}})",
        r"(?i)(?<![\w.-])((?:[a-z0-9](?:[\w-]*[a-z0-9])?\.)+"
        r"(?:com|net|org|io|dev|cloud|internal|intern|intra|local|localdomain|lan|corp|svc|home|test|example|invalid))"
        r"(?![\w-])",
    )
)
_IPV4: Final = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)", re.ASCII)
_IPV6: Final = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f.]{0,15}){2,8}(?:%\w+)?(?![\w:])", re.ASCII)
#: what stands before a port and is no host: a place in a program, a time, a broker by its number
_NO_HOST: Final = re.compile(r"(?i)\d+|.*\.(?:scala|java|log|gz)|\d{4}-\d\d-\d\dT\d\d|epoch|id|port", re.ASCII)
_KAFKAS: Final = ("state", "change", "controller", "server", "kafka", "broker", "log", "gz", "out", "json", "copy")


class Redactor:
    """Knows nothing until it has `learn`ed all that it will see: a host's name may first stand where nothing tells."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._hosts: dict[str, None] = {}
        self._pattern: re.Pattern[str] | None = None

    def learn(self, texts: Iterable[str]) -> None:
        """In the order in which names are given."""
        for text in texts:
            plain = _IPV4.sub("", _IPV6.sub("", text))
            for pattern in _LEARNED:
                for found in pattern.finditer(plain):
                    if not _NO_HOST.fullmatch(found[1]):
                        self._hosts.setdefault(found[1].lower())
                        short = found[1].lower().partition(".")[0]
                        if len(short) >= 3 and not short.isalpha():
                            self._hosts.setdefault(short)
        longest_first = sorted(self._hosts, key=lambda host: (-len(host), host))
        names = "|".join(re.escape(host) for host in longest_first)
        self._pattern = re.compile(rf"(?i)(?<![\w.-])(?:{names})(?![\w-]|\.[\w])", re.ASCII) if names else None

    def __call__(self, text: str) -> str:
        text = _IPV4.sub(self._address, _IPV6.sub(self._address, text))
        return text if self._pattern is None else self._pattern.sub(lambda found: self._name(found[0].lower()), text)

    def path(self, path: str) -> str:
        """What of the file's name is Kafka's, behind a name for its folder."""
        whole = PurePath(path)
        parts = re.split(r"([._-])", whole.name)
        kept = [part if part in ("", ".", "_", "-", *_KAFKAS) or part.isdecimal() else "x" for part in parts]
        return f"{self._name(str(whole.parent)).replace('host', 'folder')}/{''.join(kept)}"

    def _address(self, found: re.Match[str]) -> str:
        try:
            known = ipaddress.ip_address(found[0])
        except ValueError:
            return found[0]  # a time, a version
        return self._name(str(known))

    def _name(self, what: str) -> str:
        return self._names.setdefault(what, f"host-{len(self._names) + 1}")


def texts_in(tables: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """Every text of every row, names that users gave to topics among them."""
    for rows in tables.values():
        for row in rows:
            yield from (value for value in _values(row) if isinstance(value, str))


def redacted(rows: Sequence[Any], hide: Redactor) -> list[Any]:
    """The rows with every text redacted; a `path` as a path."""
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
