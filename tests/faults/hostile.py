"""The harm of a hostile tool beside malformed content (`malformed_znodes.py`): it forbids, removes, rewrites nodes.

Pure: simulated and real clusters suffer the same, each from hands of its own. Half of these fall on nodes that only one
topic or one broker hangs on, and none of them may move the seat; those on the seat's own nodes may.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final

from controller.core.events import CreateTopicAsked
from controller.core.project.znodes import (
    CONFIG_CHANGES,
    CONFIG_TOPICS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    ISR_NOTIFICATIONS,
    KLAMM,
    TERMS,
    state_path,
    topic_path,
)
from tests.faults.checker.history import Fault, object_of
from tests.faults.operations import Asked, Player

#: a node's ACL lets no client read it, or none write it and make or remove its children
HIDE, LOCK = "hide a node", "lock a node"
HIDE_SEAT, LOCK_SEAT = "hide the seat's nodes", "lock the seat's nodes"
#: ZooKeeper answers every write at a topic's nodes with a code that no ACL explains
REFUSE: Final = "refuse writes"
REMOVE: Final = "remove a parent"
SPOIL_EPOCH, DELETE_EPOCH = f"spoil {CONTROLLER_EPOCH}", f"delete {CONTROLLER_EPOCH}"
DROP_ID: Final = "drop an id"
#: into one of no topic, or of another topic
REWRITE_ID: Final = "rewrite an id"
ERASE_STATES: Final = "erase states"
#: a broker answers requests about one topic with a code, and does not carry them out
DISOBEY: Final = "disobey"

#: all that have a name of their own: no other fault is called so
HOSTILE: Final = (HIDE, LOCK, HIDE_SEAT, LOCK_SEAT, REFUSE, REMOVE, DROP_ID, ERASE_STATES, DISOBEY)
#: the seat may move because of them
ON_THE_SEAT: Final = (HIDE_SEAT, LOCK_SEAT, SPOIL_EPOCH)
#: a client may not read, or write, the harmed nodes
FORBIDDING: Final = (HIDE, LOCK, HIDE_SEAT, LOCK_SEAT)

#: all processes need these, and only brokers and controllers make them
_SHARED: Final = (
    ISR_NOTIFICATIONS, "/log_dir_event_notification", CONFIG_CHANGES, CONFIG_TOPICS, "/config", "/config/brokers",
    "/admin/delete_topics", "/admin", KLAMM, TERMS, f"{KLAMM}/draining", f"{KLAMM}/brokers",
)  # fmt: skip
#: of QuotaExceeded, and of a code that no version of ZooKeeper has
CODES: Final = (-125, -4242)
GARBAGE: Final = (b"", b"\xff{", b"-1", b"seven", b"9" * 400)
BIG: Final = "big"


def forbidden_node(assignments: Mapping[str, Sequence[int]], broker_ids: Sequence[int], draw: Random) -> str:
    """A node that a tool forbids, which may not be there."""
    shared = [*_SHARED, f"/brokers/ids/{draw.choice(list(broker_ids))}"]
    topics = sorted(name for name, numbers in assignments.items() if numbers)
    if not topics or draw.random() < 0.5:
        return draw.choice(shared)
    topic = draw.choice(topics)
    number = draw.choice(sorted(assignments[topic]))
    state = state_path(topic, number)
    partition = state.removesuffix("/state")
    parent = partition.rpartition("/")[0]
    return draw.choice((topic_path(topic), state, state, partition, parent, f"{CONFIG_TOPICS}/{topic}"))


def hidden_topics(faults: Iterable[Fault]) -> frozenset[str]:
    """Returns the topics whose nodes could not be read for a while."""
    paths = (one.target.partition(" ")[0] for one in faults if one.kind == HIDE)
    return frozenset(path.split("/")[3] for path in paths if path.startswith("/brokers/topics/"))


def seat_node(draw: Random) -> str:
    return draw.choice((CONTROLLER, CONTROLLER_EPOCH))


def removed_parent(draw: Random) -> str:
    return draw.choice(_SHARED)


def below(path: str, nodes: Collection[str]) -> list[str]:
    """It and all below it, in the order in which they can be removed."""
    return sorted((one for one in nodes if one == path or one.startswith(f"{path}/")), reverse=True)


def without_id(data: bytes) -> bytes | None:
    """A topic as a tool writes it that knows nothing of ids; None if that is no topic, or has none."""
    try:
        said: Any = json.loads(data)
        if "topic_id" not in said or said.get("adding_replicas") or said.get("removing_replicas"):
            return None
        return json.dumps({"version": 1, "partitions": said["partitions"]}).encode()
    except (ValueError, TypeError, KeyError):
        return None


def with_id(data: bytes, topic_id: str) -> bytes | None:
    """A topic as a tool writes it that has another id for it; None if that is no topic, or has none, or this one."""
    said = object_of(data)
    if said.get("topic_id") in (None, topic_id):
        return None
    return json.dumps({**said, "topic_id": topic_id}).encode()


def rewritten_ids(faults: Iterable[Fault]) -> frozenset[tuple[str, str]]:
    """Returns each topic whose id was rewritten, with the id that it was given."""
    pairs = (one.target.split(" ")[:2] for one in faults if one.kind == REWRITE_ID)
    return frozenset((path.rpartition("/")[2], topic_id) for path, topic_id in pairs)


def announcement_of(topic: str, numbers: Sequence[int]) -> bytes:
    """That states changed, as brokers below 2.7 announce it."""
    named = [{"topic": topic, "partition": number} for number in numbers]
    return json.dumps({"version": 1, "partitions": named}).encode()


def create_big(player: Player, draw: Random) -> Asked:
    """A topic whose partitions are many more than those of all others."""
    return "create-topic", BIG, CreateTopicAsked(BIG, draw.choice((100, 300)), min(3, len(player.broker_ids)))
