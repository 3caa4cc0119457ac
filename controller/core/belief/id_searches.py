"""Belief about topics whose id is not settled: searched for, disputed, or in doubt. `topic_ids.py` decides about
them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class IdAnswer(msgspec.Struct, frozen=True):
    """The ids that a broker knows for a topic; and, of replicas that it set aside, those that may be the topic's."""

    ids: frozenset[str]
    aside: frozenset[str] = frozenset()


class IdSearch(msgspec.Struct, frozen=True):
    """The brokers' answers so far, and until when the others may answer."""

    until_ms: int
    answers: Mapping[int, IdAnswer] = {}


class IdSearches(msgspec.Struct):
    """Part of the `Duties`; an entry for each exception, none for a topic whose id is beyond doubt."""

    #: topics without an id, for whose id brokers are asked
    open: dict[str, IdSearch] = {}
    #: topics for which several ids are known -> each id -> the brokers that know it (none: the znode)
    disputes: dict[str, Mapping[str, tuple[int, ...]]] = {}
    #: topics whose id was written without brokers that host their replicas: these are asked when they can be
    in_doubt: dict[str, frozenset[int]] = {}

    def is_undecided(self, topic: str) -> bool:
        """Returns whether its id is searched for, or disputed: an id written into its znode decides."""
        return topic in self.open or topic in self.disputes

    def close(self, topic: str, in_doubt: frozenset[int] = frozenset()) -> None:
        """It is settled, but for these brokers."""
        self.open.pop(topic, None)
        self.disputes.pop(topic, None)
        self.in_doubt.pop(topic, None)
        if in_doubt:
            self.in_doubt[topic] = in_doubt


def claims_said(claims: Mapping[str, tuple[int, ...]]) -> str:
    """Returns each id with the brokers that know it, in words."""
    parts = []
    for topic_id, broker_ids in claims.items():
        several = len(broker_ids) > 1
        who = f"broker{'s' * several} {', '.join(map(str, broker_ids))} know{'s' * (not several)}"
        parts.append(f"{who if broker_ids else 'its znode has'} {topic_id}")
    return ", ".join(parts)
