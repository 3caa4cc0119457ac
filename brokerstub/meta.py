"""`meta.properties` in each log directory: which broker of which cluster it belongs to. Kafka's own file, version 0.

A directory of another broker, or of another cluster, is refused at start: its replicas are not what this broker's
replicas are taken for. It knows nothing of ZooKeeper.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from brokerstub.identity import write_atomically
from controller.config import ConfigError, read_properties

FILE: Final = "meta.properties"
_ID: Final = re.compile(r"[0-9]{1,10}")


class MetaError(ConfigError):
    """A log directory belongs to somebody else."""


class Meta(msgspec.Struct, frozen=True):
    """What one file says; None: nothing."""

    path: Path
    broker_id: int | None
    cluster_id: str | None


def read_metas(directories: Iterable[Path]) -> list[Meta]:
    """Of the directories that have one."""
    return [_read(path) for directory in directories if (path := directory / FILE).exists()]


def broker_id_of(metas: Iterable[Meta], configured: int) -> int | None:
    """The broker's id, checked against every directory; None when nobody has given it one yet."""
    found = None if configured < 0 else configured
    source = "property broker.id"
    for meta in metas:
        if meta.broker_id is None:
            continue
        if found is None:
            found, source = meta.broker_id, str(meta.path)
        if meta.broker_id != found:
            raise MetaError(f"{meta.path} belongs to broker {meta.broker_id}, and {source} says {found}")
    return found


def check_cluster(metas: Iterable[Meta], cluster_id: str) -> None:
    for meta in metas:
        if meta.cluster_id not in (None, cluster_id):
            raise MetaError(f"{meta.path} belongs to cluster {meta.cluster_id}, and ZooKeeper has cluster {cluster_id}")


def write_metas(directories: Iterable[Path], broker_id: int, cluster_id: str) -> None:
    """Where the file is missing or says less."""
    for directory in directories:
        wanted = Meta(directory / FILE, broker_id, cluster_id)
        if wanted not in read_metas([directory]):
            text = f"# which broker of which cluster\nversion=0\nbroker.id={broker_id}\ncluster.id={cluster_id}\n"
            write_atomically(wanted.path, text.encode())


def _read(path: Path) -> Meta:
    properties = read_properties(path)
    broker_id = properties.get("broker.id")
    if properties.get("version") != "0" or not (broker_id is None or _ID.fullmatch(broker_id)):
        raise MetaError(f"{path} is no meta.properties of version 0")
    return Meta(path, None if broker_id is None else int(broker_id), properties.get("cluster.id"))
