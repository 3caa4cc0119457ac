"""ZooKeeper's history below one chroot, in its own order: winners of the seat, registrations, ends of sessions.

Owns nothing: it reads the transaction log of a server that may be running. It must never ask a broker.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from brokerstub.lab.zookeeper import ZooKeeperServer
from sparkjobs.records.zookeeper_files import Operation, longest_history
from tests.faults.checker.replay import epoch_in


class Claim(NamedTuple):
    """The seat, won."""

    broker_id: int
    controller_epoch: int
    session: int
    zxid: int
    at_ms: int


class Registration(NamedTuple):
    """A broker's znode, made; the zxid is the broker epoch."""

    session: int
    zxid: int
    at_ms: int


class Order:
    """Read anew with every call. Times are those that ZooKeeper stamps its transactions with."""

    def __init__(self, servers: Sequence[ZooKeeperServer], chroot: str) -> None:
        self._servers = servers
        self._chroot = chroot

    def operations(self) -> list[Operation]:
        """Returns the operations below the chroot, and all sessions' beginnings and ends."""
        found = []
        for one in longest_history([server.data_dir for server in self._servers]):
            if one.path is None:
                found.append(replace(one, paths=tuple(path.removeprefix(self._chroot) for path in one.paths)))
            elif one.path.startswith(f"{self._chroot}/"):
                found.append(replace(one, path=one.path.removeprefix(self._chroot)))
        return found

    def claims(self) -> list[Claim]:
        """Every time that the seat was won."""
        operations = self.operations()
        kinds = ("create", "set")  # made anew when it is missing
        drawn = [one for one in operations if one.kind in kinds and one.path == "/controller_epoch"]
        epochs = {one.zxid: epoch_in(one.data or b"") or -1 for one in drawn}
        return [
            Claim(json.loads(one.data or b"")["brokerid"], epochs[one.zxid], one.session, one.zxid, one.at_ms)
            for one in operations
            if _is(one, "create", "/controller")
        ]

    def registrations(self, broker_id: int) -> list[Registration]:
        """All that a broker ever had."""
        path = f"/brokers/ids/{broker_id}"
        return [Registration(one.session, one.zxid, one.at_ms) for one in self.operations() if _is(one, "create", path)]

    def end_of(self, session: int) -> Operation | None:
        """How a session was closed, by its owner or because it had expired."""
        return next((one for one in self.operations() if one.kind == "close" and one.session == session), None)


def _is(operation: Operation, kind: str, path: str) -> bool:
    return (operation.kind, operation.path) == (kind, path)
