"""Ports for servers that tests and tools start: every process has a range of its own, for as long as it lives.

Owns that range: below the ports that systems give to outgoing connections, one of which could be taken while its server
is down, even by a client that tries to reach it. A range is held by a socket bound to its first port, so the kernel
gives it to one process and takes it back however that process ends. It must never give out a port that is in use.
"""

from __future__ import annotations

import contextlib
import os
import socket
from functools import cache

HOST = "127.0.0.1"
FIRST, END, RANGE = 20_000, 32_000, 300


class NoPortsError(Exception):
    """There is no port to be had; the message says why."""


def is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
        return True
    return False


def free_port() -> int:
    """Returns a port that no process uses now. It is given again only when all others of this process were given."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """Returns the first of so many such ports in a row."""
    return _range_of(os.getpid()).take(count)


class _Range:
    def __init__(self) -> None:
        for first in range(FIRST, END, RANGE):
            holder = socket.socket()
            try:
                holder.bind((HOST, first))  # without SO_REUSEADDR: one process only
            except OSError:
                holder.close()
                continue
            self._first, self._next = first, 1
            holder.detach()  # open until the process ends
            return
        raise NoPortsError(f"all ranges of ports from {FIRST} to {END} are held by other processes: end some of them")

    def take(self, count: int) -> int:
        for _ in range(RANGE):
            begin = self._next if self._next + count <= RANGE else 1
            if begin + count > RANGE:
                break
            row = range(self._first + begin, self._first + begin + count)
            if all(map(is_free, row)):
                self._next = begin + count
                return row[0]
            self._next = begin + 1
        raise NoPortsError(f"no {count} free ports in a row from {self._first} to {self._first + RANGE}")


@cache
def _range_of(process_id: int) -> _Range:
    """Returns a range for each process: a fork inherits its parent's range and needs its own."""
    return _Range()
