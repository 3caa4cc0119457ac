"""Operations that random schedules draw: through the API, and by the request nodes of Kafka's tools.

Simulated and real clusters are asked for the same ones, each by a player of its own. This module asks none itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, Protocol

from controller.core.events import (
    ConfigAsked,
    CreateTopicAsked,
    DeleteTopicAsked,
    DrainAsked,
    ElectAsked,
    Event,
    GrowTopicAsked,
    ReassignAsked,
    UndrainAsked,
)

TOPICS: Final = ("alpha", "beta", "gamma")
Asked = tuple[str, str, Event] | None


#: when all has come to rest, this has to succeed
PROBE: Final = ("probe", "probe", CreateTopicAsked("probe", 1, 1))


class Player(Protocol):
    """A client: its knowledge of the cluster, and how it writes a request node."""

    @property
    def broker_ids(self) -> Sequence[int]: ...

    def assignment(self, topic: str) -> Mapping[int, Sequence[int]]: ...

    def write(self, path: str, data: bytes) -> None: ...


Operation = Callable[[Player, Random], Asked]


def _create(player: Player, draw: Random) -> Asked:
    name, brokers = draw.choice(TOPICS), len(player.broker_ids)
    return "create-topic", name, CreateTopicAsked(name, draw.randint(1, 3), draw.randint(1, min(3, brokers)))


def _delete(player: Player, draw: Random) -> Asked:
    name = draw.choice(TOPICS)
    return "delete-topic", name, DeleteTopicAsked(name, abandon_offline=draw.random() < 0.2)


def _grow(player: Player, draw: Random) -> Asked:
    name = draw.choice(TOPICS)
    return "grow-topic", name, GrowTopicAsked(name, len(player.assignment(name)) + 1)


def _targets(player: Player, draw: Random) -> dict[tuple[str, int], tuple[int, ...]]:
    name = draw.choice(TOPICS)
    ids = list(player.broker_ids)
    return {
        (name, number): tuple(draw.sample(ids, draw.randint(1, min(3, len(ids)))))
        for number in player.assignment(name)
        if draw.random() < 0.7
    }


def _reassign(player: Player, draw: Random) -> Asked:
    targets = _targets(player, draw)
    return ("reassign", str(sorted(targets)), ReassignAsked(targets)) if targets else None


def _cancel(player: Player, draw: Random) -> Asked:
    name = draw.choice(TOPICS)
    targets = dict.fromkeys(((name, number) for number in player.assignment(name)), None)
    return ("cancel", name, ReassignAsked(targets)) if targets else None


def _elect(player: Player, draw: Random) -> Asked:
    return "elect", "all", ElectAsked(is_unclean=False)


def _elect_uncleanly(player: Player, draw: Random) -> Asked:
    return ("elect-unclean", "all", ElectAsked(is_unclean=True)) if draw.random() < 0.3 else None


def _drain(player: Player, draw: Random) -> Asked:
    broker_id = draw.choice(list(player.broker_ids))
    return "drain", str(broker_id), DrainAsked(broker_id)


def _undrain(player: Player, draw: Random) -> Asked:
    broker_id = draw.choice(list(player.broker_ids))
    return "undrain", str(broker_id), UndrainAsked(broker_id)


def _configure(player: Player, draw: Random) -> Asked:
    name = draw.choice(TOPICS)
    value = draw.choice(("true", "false", None))
    return "configure", name, ConfigAsked("topics", name, {"unclean.leader.election.enable": value})


def _reassign_by_node(player: Player, draw: Random) -> Asked:
    wanted = [
        {"topic": topic, "partition": number, "replicas": list(replicas)}
        for (topic, number), replicas in _targets(player, draw).items()
    ]
    player.write("/admin/reassign_partitions", json.dumps({"version": 1, "partitions": wanted}).encode())
    return None


def _elect_by_node(player: Player, draw: Random) -> Asked:
    wanted = [{"topic": t, "partition": n} for t in TOPICS for n in player.assignment(t)]
    player.write("/admin/preferred_replica_election", json.dumps({"version": 1, "partitions": wanted}).encode())
    return None


def _delete_by_node(player: Player, draw: Random) -> Asked:
    player.write(f"/admin/delete_topics/{draw.choice(TOPICS)}", b"")
    return None


OPERATIONS: Final[dict[str, Operation]] = {
    "create": _create, "create again": _create, "delete": _delete, "grow": _grow, "reassign": _reassign,
    "reassign again": _reassign, "cancel": _cancel, "elect": _elect, "elect uncleanly": _elect_uncleanly,
    "drain": _drain, "undrain": _undrain, "configure": _configure, "reassign by node": _reassign_by_node,
    "elect by node": _elect_by_node, "delete by node": _delete_by_node,
}  # fmt: skip
