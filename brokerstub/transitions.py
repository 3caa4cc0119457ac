"""What one request of the controller made of this broker's replicas, for its state-change log. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

from brokerstub.replicas import Taken
from controller.core.belief.kept_states import bits_of
from controller.core.project.lines import pieces_of
from controller.wire.bodies import TopicRows, TopicStops


class Became(StrEnum):
    LEADER = "leader"
    FOLLOWER = "follower"
    STOPPED = "stopped"
    DELETED = "deleted"
    #: no longer in a full list, and kept on disk
    SET_ASIDE = "set aside"


class Transitions:
    """Of one request: which replicas became what. An ISR or a version that is new is none."""

    def __init__(self, broker_id: int, topics: Iterable[TopicRows | TopicStops]) -> None:
        self._broker_id = broker_id
        self._names = {topic.topic_id: topic.topic for topic in topics}
        self._numbers: dict[Became, dict[str, list[int]]] = {}

    def take(self, taken: Taken) -> None:
        """Note what came of a piece of the request, once the disk has taken it."""
        refused = {(one.topic_id, one.partition) for one in taken.refused}
        aside = {one.key: one.topic for one in taken.written if one.stray is not None}
        deleted = {one.key: one.topic for one in taken.deleted}
        for became, keys in ((Became.SET_ASIDE, aside), (Became.DELETED, deleted)):
            for key, topic in keys.items():
                if key not in refused:
                    self._note(became, topic, key[1])
        for change in taken.changes:
            key, row = change.key, change.after
            if key in refused or key in aside or key in deleted:
                continue
            if row is None:
                self._note(Became.STOPPED, self._names.get(key[0], key[0]), key[1])
            elif change.is_new_leadership:
                is_leader = row.leader == self._broker_id
                self._note(Became.LEADER if is_leader else Became.FOLLOWER, self._names[key[0]], key[1])

    def groups(self) -> Iterator[tuple[Became, Mapping[str, str]]]:
        """Topic -> partitions as "0-4,7", by what they became, in pieces that each fit into a line of 64 KiB."""
        for became, topics in self._numbers.items():
            for piece in pieces_of({topic: bits_of(numbers) for topic, numbers in topics.items()}):
                yield became, piece

    def _note(self, became: Became, topic: str, number: int) -> None:
        self._numbers.setdefault(became, {}).setdefault(topic, []).append(number)
