"""How many files a process may have open. Each connection is one: those that anybody may open leave enough for
ZooKeeper, for other brokers, and for logs.
"""

from __future__ import annotations

import resource
from typing import Final

import msgspec

from controller.base.config import LIMITS, Limits

FILES_WANTED: Final = 65_536


def allow_files() -> int:
    """As many as this process wants, if the system lets it; returns how many there may be."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if most < 0 else min(most, FILES_WANTED)
    if 0 <= now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
        return wanted
    return FILES_WANTED if now < 0 else now


def limits_within(files: int, limits: Limits = LIMITS) -> Limits:
    """With no more connections of a kind than a quarter of these files."""
    share = max(1, files // 4)
    return msgspec.structs.replace(
        limits,
        connections=min(limits.connections, share),
        connections_per_peer=min(limits.connections_per_peer, share),
        kafka_connections=min(limits.kafka_connections, share),
        kafka_connections_per_peer=min(limits.kafka_connections_per_peer, share),
    )
