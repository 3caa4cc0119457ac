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

from controller.base.config import ConfigError, read_properties
from controller.base.files import write_atomically

FILE: Final = "meta.properties"
_ID: Final = re.compile(r"[0-9]{1,10}")


class MetaPropertiesError(ConfigError):
    """A log directory belongs to somebody else."""


class MetaProperties(msgspec.Struct, frozen=True):
    """What one file says; None: nothing."""

    path: Path
    broker_id: int | None
    cluster_id: str | None


def read_meta_properties(directories: Iterable[Path]) -> list[MetaProperties]:
    """Of the directories that have one."""
    return [_read(path) for directory in directories if (path := directory / FILE).exists()]


def broker_id_of(files: Iterable[MetaProperties], configured: int) -> int | None:
    """The broker's id, checked against every directory; None when nobody has given it one yet."""
    found = None if configured < 0 else configured
    source = "property broker.id"
    for meta in files:
        if meta.broker_id is None:
            continue
        if found is None:
            found, source = meta.broker_id, str(meta.path)
        if meta.broker_id != found:
            raise MetaPropertiesError(f"{meta.path} belongs to broker {meta.broker_id}, and {source} says {found}")
    return found


def check_cluster(files: Iterable[MetaProperties], cluster_id: str) -> None:
    for meta in files:
        if meta.cluster_id not in (None, cluster_id):
            raise MetaPropertiesError(
                f"{meta.path} belongs to cluster {meta.cluster_id}, and ZooKeeper has cluster {cluster_id}"
            )


def write_meta_properties(directories: Iterable[Path], broker_id: int, cluster_id: str) -> None:
    """Where the file is missing or says less."""
    for directory in directories:
        wanted = MetaProperties(directory / FILE, broker_id, cluster_id)
        if wanted not in read_meta_properties([directory]):
            text = f"# which broker of which cluster\nversion=0\nbroker.id={broker_id}\ncluster.id={cluster_id}\n"
            write_atomically(wanted.path, text.encode())


def _read(path: Path) -> MetaProperties:
    properties = read_properties(path)
    broker_id = properties.get("broker.id")
    if properties.get("version") != "0" or not (broker_id is None or _ID.fullmatch(broker_id)):
        raise MetaPropertiesError(f"{path} is no meta.properties of version 0")
    return MetaProperties(path, None if broker_id is None else int(broker_id), properties.get("cluster.id"))
