"""The catalogue of shapes as a whole, and the way from a body to its shape. Order matters: the first that fits."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from sparkjobs.parse.patterns import Shape
from sparkjobs.parse.shapes_broker import BROKER_SHAPES
from sparkjobs.parse.shapes_cluster import CLUSTER_SHAPES
from sparkjobs.parse.shapes_controller import CONTROLLER_SHAPES
from sparkjobs.parse.shapes_kraft import KRAFT_BROKER_SHAPES, KRAFT_CONTROLLER_SHAPES, KRAFT_SERVER_SHAPES
from sparkjobs.parse.shapes_tenure import SERVER_SHAPES, TENURE_SHAPES

SHAPES: Final[tuple[Shape, ...]] = (
    *KRAFT_BROKER_SHAPES,
    *KRAFT_SERVER_SHAPES,
    *BROKER_SHAPES,
    *KRAFT_CONTROLLER_SHAPES,
    *CONTROLLER_SHAPES,
    *CLUSTER_SHAPES,
    *TENURE_SHAPES,
    *SERVER_SHAPES,
)

#: as long as the longest anchor
KEY_LENGTH: Final = max(len(shape.anchor) for shape in SHAPES)

#: shapes of lines that are no text of Kafka's, or of no use here
UNLISTED: Final = "unlisted"

#: old names of states, and numbers that stand for words
STATE_NAMES: Final = {
    "NotExists": "NonExistentPartition",
    "New": "NewPartition",
    "Online": "OnlinePartition",
    "Offline": "OfflinePartition",
}
RECOVERY_NAMES: Final = {"0": "RECOVERED", "1": "RECOVERING"}
API_NAMES: Final = {
    "LEADER_AND_ISR": "LeaderAndIsr",
    "UPDATE_METADATA": "UpdateMetadata",
    "STOP_REPLICA": "StopReplica",
}
#: why a broker ignored a request: the first words found in what it says
_REFUSALS: Final = (
    ("controller epoch", "stale_controller_epoch"),
    ("matches the current leader epoch", "same_leader_epoch"),
    ("leader epoch", "stale_leader_epoch"),
    ("not in assigned replica list", "not_a_replica"),
    ("offline", "offline_directory"),
    ("", "refused"),
)

#: of a request, and of who ignores it
_LEADER_EPOCHS: Final = re.compile(r"leader epoch (\d+)\b.*leader epoch (?:is )?(\d+)", re.ASCII)


def refusal_in(reason: str) -> str:
    """What a broker knows already is old to it, too, or not higher: the numbers tell."""
    error = next(error for words, error in _REFUSALS if words in reason)
    epochs = _LEADER_EPOCHS.search(reason) if error == "stale_leader_epoch" else None
    return "same_leader_epoch" if epochs is not None and epochs[1] == epochs[2] else error


def _by_first_word() -> dict[str, tuple[tuple[str, str, Shape], ...]]:
    found: defaultdict[str, list[tuple[str, str, Shape]]] = defaultdict(list)
    for shape in SHAPES:
        found[shape.anchor.split(" ", 1)[0]].append((shape.anchor, shape.mark, shape))
    return {word: tuple(shapes) for word, shapes in found.items()}


_BY_FIRST_WORD: Final = _by_first_word()


def route(key: str, body: str) -> Shape | None:
    """The shape that a body must have which begins like this key."""
    for anchor, mark, shape in _BY_FIRST_WORD.get(key.split(" ", 1)[0], ()):
        if key.startswith(anchor) and mark in body:
            return shape
    return None
