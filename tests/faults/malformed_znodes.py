"""Nonsense for znodes that controllers believe in: its content, and an operator's announcement when it is put right.
Pure: simulated and real clusters spoil the same ones, each with hands of its own.

The repair puts back the earlier content, if the nonsense still stands: a write in between is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from controller.core.project.znodes import (
    CONFIG_CHANGES,
    CONFIG_TOPICS,
    ISR_NOTIFICATIONS,
    state_path,
    topic_path,
)

#: no reader can parse any of these, in the place of any node; nor can the rules of `checker`
_TEXTS: Final = (b"", b"\xff{", b"{", b"[]", b"null")
TOPIC, STATE, CONFIG = "spoil a topic", "spoil a state", "spoil a configuration"
SPOILED: Final = (TOPIC, STATE, CONFIG)


class Target(NamedTuple):
    """A znode, and how processes without a watch hear of its change: a sequential znode below `parent`, or none."""

    path: str
    parent: str = ""
    prefix: str = ""
    notice: bytes = b""


def target_for(kind: str, assignments: Mapping[str, Sequence[int]], draw: Random) -> Target | None:
    """One of these topics, or one of its partitions; None when there is none."""
    if not (topics := sorted(name for name, numbers in assignments.items() if numbers)):
        return None
    topic = draw.choice(topics)
    number = draw.choice(sorted(assignments[topic]))
    if kind == TOPIC:
        return Target(topic_path(topic))
    if kind == STATE:
        said: dict[str, Any] = {"version": 1, "partitions": [{"topic": topic, "partition": number}]}
        return Target(state_path(topic, number), ISR_NOTIFICATIONS, "isr_change_", json.dumps(said).encode())
    said = {"version": 2, "entity_path": f"topics/{topic}"}
    return Target(f"{CONFIG_TOPICS}/{topic}", CONFIG_CHANGES, "config_change_", json.dumps(said).encode())


def nonsense_for(data: bytes, draw: Random) -> bytes:
    """Returns the present content, cut off; or one that it could never have."""
    return draw.choice((*_TEXTS, data[: len(data) // 2]))


def can_be_spoiled(kind: str, data: bytes) -> bool:
    """A topic that may be led uncleanly is left alone: it is unknown when its controller had heard that it may not any
    more."""
    return kind != CONFIG or b"true" not in data
