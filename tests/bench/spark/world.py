"""State-change logs at TRACE of a cluster that never was: outages are known, one line in ten is about one.

The same seed gives the same bytes.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

BROKERS: Final = 12
PARTITIONS: Final = 4_000
_START_S: Final = 7 * 3_600


def write_logs(folder: Path, lines: int, seed: int = 1) -> int:
    """A file per broker; returns how many outages there are, all of them over."""
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    outages = 0
    for broker in range(1, BROKERS + 1):
        own = range(broker - 1, PARTITIONS, BROKERS)
        count = lines // BROKERS
        with (folder / f"broker{broker}-state-change.log").open("w", encoding="utf-8") as file:
            file.write(_begun(broker, own[0]))
            number = 0
            while number < count:
                partition, epoch = draw.choice(own), number // 20
                about = _outage(broker, number, partition, epoch)
                outages += 1
                talk = [_talk(draw, broker, number + 2 + step, partition, epoch) for step in range(18)]
                file.writelines([about[0], *talk[:9], about[1], *talk[9:]])
                number += 20
    return outages


def _header(number: int) -> str:
    second, milli = divmod(number * 3, 1_000)
    minutes, second = divmod(_START_S + second, 60)
    hour, minute = divmod(minutes, 60)
    return f"[2026-11-{18 + hour // 24:02} {hour % 24:02}:{minute:02}:{second:02},{milli:03}]"


def _begun(broker: int, partition: int) -> str:
    """By such lines brokers since 2.6 are known: without one the work of Kafka before them is done, which is more."""
    name = f"topic-{partition % 40}-{partition // 40}"
    return (
        f"{_header(0)} INFO [Broker id={broker}] Follower {name} starts at leader epoch 0 from offset 0 with "
        "partition epoch 0 and high watermark 0. Current leader is 3. Previous leader None and previous leader epoch "
        "was -1. (state.change.logger)\n"
    )


def _outage(broker: int, number: int, partition: int, epoch: int) -> tuple[str, str]:
    name = f"topic-{partition % 40}-{partition // 40}"
    who = f"TRACE [Controller id={broker} epoch=7]"
    state = f"LeaderAndIsr(leader={broker}, leaderEpoch={epoch}, isr=List({broker}, 3), zkVersion={epoch})"
    return (
        f"{_header(number)} {who} Changed partition {name} state from OnlinePartition to OfflinePartition "
        "(state.change.logger)\n",
        f"{_header(number + 11)} {who} Changed partition {name} from OfflinePartition to OnlinePartition with state "
        f"{state} (state.change.logger)\n",
    )


def _talk(draw: random.Random, broker: int, number: int, partition: int, epoch: int) -> str:
    name = f"topic-{partition % 40}-{partition // 40}"
    topic, _, index = name.rpartition("-")
    struct = (
        f"(topicName='{topic}', partitionIndex={index}, controllerEpoch=7, leader={broker}, leaderEpoch={epoch}, "
        f"isr=[{broker}, 3], zkVersion={epoch}, replicas=[{broker}, 3, 4], "
    )
    by = f"correlation id {number} from controller {broker} epoch 7"
    said = draw.choice(
        (
            f"[Broker id={broker}] Cached leader info UpdateMetadataPartitionState{struct}offlineReplicas=[]) for "
            f"partition {name} in response to UpdateMetadata request sent by controller 1 epoch 7 with correlation id "
            f"{number}",
            f"[Broker id={broker}] Received LeaderAndIsr request LeaderAndIsrPartitionState{struct}addingReplicas=[], "
            f"removingReplicas=[], isNew=false) {by}",
            f"[Broker id={broker}] Handling LeaderAndIsr request correlationId {number} from controller 1 epoch 7 "
            f"starting the become-follower transition for partition {name} with leader {broker}",
            f"[Broker id={broker}] Completed LeaderAndIsr request correlationId {number} from controller 1 epoch 7 for "
            f"the become-follower transition for partition {name} with leader {broker}",
            f"[Controller id={broker} epoch=7] Changed state of replica {broker} for partition {name} from "
            "OfflineReplica to OnlineReplica",
        )
    )
    return f"{_header(number)} TRACE {said} (state.change.logger)\n"


def another_day(folder: Path, to: Path, day: int) -> None:
    """The same logs as if all had happened so many days later."""
    to.mkdir(parents=True)
    for path in folder.iterdir():
        text = b"\n" + path.read_bytes()
        for known in (18, 19):
            text = text.replace(f"\n[2026-11-{known}".encode(), f"\n[2026-12-{known - 17 + 2 * day:02}".encode())
        (to / path.name).write_bytes(text[1:])
