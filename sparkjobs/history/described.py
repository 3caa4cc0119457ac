"""A cluster out of what `kafka-topics --describe` printed: partitions with leader, replicas and ISR, of any release.

It says of a broker only that it leads or is in sync, so those are taken to live. It does not say the rule of elections:
a list with `Elr:` is KRaft's with eligible leader replicas, any other is told by the rule that both modes share.
"""

from __future__ import annotations

import re
from typing import Final

from sparkjobs.history.cluster import NOBODY, Broker, Cluster, Partition
from sparkjobs.history.elections import ELR_FEATURE
from sparkjobs.records.errors import RecordError

_FIELD: Final = re.compile(
    r"(Topic|TopicId|PartitionCount|Configs|Partition|Leader|Replicas|Isr|Elr|LastKnownElr|Adding Replicas|"
    r"Removing Replicas): *([^\t]*?)(?=[\t ]+(?:[A-Z]\w*|Adding Replicas|Removing Replicas):|\s*$)",
    re.ASCII,
)
#: a description of 100,000 partitions has 15 MB
MAX_BYTES: Final = 256 * 1024 * 1024


def cluster_in(text: str) -> Cluster:
    """Raises RecordError for a line that names a partition and does not say the rest."""
    cluster = Cluster("zookeeper")
    for number, line in enumerate(text.splitlines(), 1):
        said = {key: value.strip() for key, value in _FIELD.findall(line)}
        if "Topic" not in said:
            continue
        if "Partition" not in said:
            _take_topic(cluster, said)
            continue
        try:
            _take_partition(cluster, said)
        except (KeyError, ValueError):
            raise RecordError(f"line {number} names a partition and not its leader, replicas and ISR") from None
    if not cluster.partitions:
        raise RecordError("no line of it describes a partition")
    for partition in cluster.partitions.values():
        for broker in (partition.leader, *partition.isr):
            if broker != NOBODY:
                cluster.brokers[broker] = Broker(0)
    return cluster


def _take_topic(cluster: Cluster, said: dict[str, str]) -> None:
    if said.get("TopicId"):
        cluster.topic_ids[said["Topic"]] = said["TopicId"]
    pairs = [one.partition("=") for one in said.get("Configs", "").split(",") if "=" in one]
    if pairs:
        cluster.configs["topic", said["Topic"]] = {key.strip(): value.strip() for key, _, value in pairs}


def _take_partition(cluster: Cluster, said: dict[str, str]) -> None:
    leader = NOBODY if said["Leader"] in ("none", "-1") else int(said["Leader"])
    if "Elr" in said:
        cluster.mode = "kraft"
        cluster.configs["feature", ""] = {ELR_FEATURE: "1"}
    cluster.partitions[said["Topic"], int(said["Partition"])] = Partition(
        leader=leader,
        leader_epoch=0,
        isr=_numbers(said["Isr"]),
        replicas=_numbers(said["Replicas"]),
        epoch=0,
        adding=_numbers(said.get("Adding Replicas", "")),
        removing=_numbers(said.get("Removing Replicas", "")),
        elr=_numbers(said.get("Elr", "")),
        last_known_elr=_numbers(said.get("LastKnownElr", "")),
    )


def _numbers(words: str) -> tuple[int, ...]:
    return tuple(int(one) for one in words.replace(" ", "").split(",") if one and one != "N/A")
