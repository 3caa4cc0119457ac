"""The cost of a controller's requests to a broker: the bodies of a failover, decoded and kept by our stub's own code.

`python -m tests.bench.broker_side TOPICS PARTITIONS` prints JSON: seconds until all metadata (kept undecoded) and the
broker's own replicas (decoded) are taken in, and the memory that the metadata takes for each partition of the cluster.
"""

from __future__ import annotations

import json
import sys
import time
import tracemalloc

from brokerstub.metadata import MetadataCache
from controller.core.model import Broker, Leadership, Partition
from controller.core.project.requests import KnownBroker, TopicKey
from controller.tell.dialects import Request, Wanted
from controller.tell.dialects.http import encode_states
from controller.tell.merge_queue import by_host, split
from controller.wire import bodies
from tests.bench.world import BROKERS, replicas_of, topic_id_of

PARTITIONS_PER_RPC = 10_000
BROKER_ID = 0


def bodies_for(path: str, rows: Wanted) -> list[bytes]:
    brokers = [KnownBroker(Broker(n, n, "h", 1, (f"HTTP://127.0.0.1:{8081 + n}",)), "live") for n in range(BROKERS)]
    pieces = list(split(rows, PARTITIONS_PER_RPC))
    return [
        encode_states(
            Request(
                path=path,
                brokers=brokers,
                live_ids=frozenset(range(BROKERS)),
                tells_brokers=number == 1,
                rows=piece,
                full=True,
                part=number,
                parts=len(pieces),
            )
        )
        for number, piece in enumerate(pieces, start=1)
    ]


def the_cluster(topics: int, partitions: int) -> dict[TopicKey, dict[int, Partition]]:
    rows: dict[TopicKey, dict[int, Partition]] = {}
    for name in (f"topic-{number}" for number in range(topics)):
        placed = ((number, replicas_of(name, number)) for number in range(partitions))
        rows[name, topic_id_of(name)] = {
            number: Partition(replicas, state=Leadership(replicas[0], 0, replicas, 1), version=0)
            for number, replicas in placed
        }
    return rows


def measure(topics: int, partitions: int) -> dict[str, float]:
    cluster = the_cluster(topics, partitions)
    metadata = bodies_for(bodies.UPDATE_METADATA, cluster)
    replicas = bodies_for(bodies.LEADER_AND_ISR, by_host(cluster, [BROKER_ID])[BROKER_ID])
    del cluster
    started = time.process_time()
    _take(metadata)
    told = [bodies.decode(body, bodies.StatesRequest) for body in replicas]
    took_s = time.process_time() - started
    assert sum(len(topic.partitions) for one in told for topic in one.topics) > 0
    tracemalloc.start()
    cache = _take(metadata)
    taken_bytes, _ = tracemalloc.get_traced_memory()
    assert len(cache.topic_names) == topics
    return {"seconds": took_s, "kib_per_partition": taken_bytes / 1024 / (topics * partitions)}


def _take(encoded: list[bytes]) -> MetadataCache:
    cache = MetadataCache("bench", BROKER_ID)
    for body in encoded:
        cache.take(bodies.decode(body, bodies.UndecodedStatesRequest), 0, 1)
    return cache


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))) + "\n")
