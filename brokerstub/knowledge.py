"""What this broker knows of topics by itself: of each name the ids that it was told and those of replicas on its disks.

It reads metadata and replicas and changes nothing. A replica that was set aside tells an id that counts for nothing,
and leader epochs that do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import chain

from brokerstub.metadata import MetadataCache
from brokerstub.replicas import Replica, Replicas
from controller.wire.bodies import DescribedId, DescribedTopic, KnownEpoch


def described(names: Collection[str], metadata: MetadataCache, replicas: Replicas) -> Iterator[DescribedTopic]:
    """Each of these topics once, in the order asked."""
    wanted = dict.fromkeys(names)
    on_disk: defaultdict[str, list[Replica]] = defaultdict(list)
    for replica in chain(replicas.held.values(), replicas.strays.values()):
        if replica.topic in wanted:
            on_disk[replica.topic].append(replica)
    for name in wanted:
        told = metadata.topic(name)
        rows = () if told is None else told.partitions
        ids: dict[str, dict[int, int]] = {}
        if told is not None:
            ids[told.topic_id] = {row.partition: row.leader_epoch for row in rows}
        held_ids = set()
        for replica in on_disk[name]:
            epochs = ids.setdefault(replica.topic_id, {})
            epochs[replica.partition] = max(epochs.get(replica.partition, -1), *replica.leader_epochs, -1)
            if replica.stray is None:
                held_ids.add(replica.topic_id)
        told_id = None if told is None else told.topic_id
        yield DescribedTopic(
            name,
            [
                DescribedId(
                    one, one == told_id, one in held_ids, [KnownEpoch(*pair) for pair in sorted(epochs.items())]
                )
                for one, epochs in sorted(ids.items())
            ],
        )
