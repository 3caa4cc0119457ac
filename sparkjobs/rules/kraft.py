"""The share of logs beside a record: when brokers acted, and the lines of KRaft's controllers about themselves and
brokers.

A record gives a decision, never the moment at which a broker carried it out. A broker's line of its own role names
leader epoch and partition epoch, hence one record. A controller's line about a fencing comes before the record, and may
be void.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sparkjobs.rules.facts import Facts, Tally
from sparkjobs.tables.gold import Fencing, MigrationState, NodeSign, QuorumTenure, ReplicaRole
from sparkjobs.tables.silver import SilverEvent

_ROLES: Final = frozenset({"leader_started", "follower_started"})
#: about one partition
EVENTS: Final = _ROLES | {"partition_changed"}
#: about the quorum
QUORUM_EVENTS: Final = frozenset(
    {"quorum_fencing", "quorum_activated", "quorum_renounced", "migration_moved", "quorum_state"}
)
#: an end in order, of a broker and of a controller
STOPS: Final = frozenset({"server_stopping", "controlled_shutdown_started", "quorum_stopping"})
#: how a node's own part in the quorum is named, and the sign that it is
_STANDING: Final = {
    "ProspectiveState": "prospective",
    "CandidateState": "candidate",
    "Leader": "leader",
    "ResignedState": "resigned",
}
#: lines that only brokers write that read the metadata log
_READING: Final = frozenset({"metadata_step", "metadata_seen"})


def readers_in(tallies: Iterable[Tally]) -> frozenset[int]:
    """Brokers that go by the metadata log."""
    return frozenset(one.broker for one in tallies if one.broker is not None and one.event in _READING)


def replica_roles_of(events: Sequence[SilverEvent], facts: Facts) -> Iterator[ReplicaRole]:
    """Returns the roles of one partition. In ZooKeeper mode only where an election was unclean: there offsets show the
    lost records."""
    is_unclean = any(event.recovery == "RECOVERING" for event in events)
    for event in events:
        is_asked = is_unclean or event.broker in facts.metadata_readers
        if event.event not in _ROLES or not is_asked or event.broker is None or event.leader_epoch is None:
            continue
        assert event.topic is not None
        assert event.partition is not None
        is_leader = event.event == "leader_started"
        yield ReplicaRole(
            cluster=event.cluster,
            topic=event.topic,
            partition=event.partition,
            leader_epoch=event.leader_epoch,
            partition_epoch=event.version,
            broker=event.broker,
            role="leader" if is_leader else "follower",
            at_ms=event.ts_adj,
            leader=event.broker if is_leader else event.leader,
            offset=event.offset,
            file_id=event.file_id,
            line_no=event.line_no,
        )


def fencings_of(facts: Facts) -> Iterator[Fencing]:
    """All that controllers said; the record knows which came true."""
    for event in facts.quorum:
        if event.event == "quorum_fencing" and event.broker is not None and event.peer_broker is not None:
            yield Fencing(
                cluster=facts.cluster,
                at_ms=event.ts_adj,
                controller=event.broker,
                broker=event.peer_broker,
                broker_epoch=event.broker_epoch,
                heard_ms=facts.voices.get((event.peer_broker, event.ts_adj)),
                file_id=event.file_id,
                line_no=event.line_no,
            )


def node_signs_of(facts: Facts) -> Iterator[NodeSign]:
    """Of KRaft's nodes alone: of others ZooKeeper tells."""
    nodes = facts.metadata_readers | {one.broker for one in facts.quorum if one.broker is not None}
    for event in facts.quorum:
        sign = _STANDING.get(event.to_state or "") if event.event == "quorum_state" else None
        if sign is not None and event.broker is not None:
            yield NodeSign(
                cluster=facts.cluster,
                at_ms=event.ts_adj,
                node=event.broker,
                sign=sign,
                epoch=event.controller_epoch,
                file_id=event.file_id,
                line_no=event.line_no,
            )
    for event in facts.stopping:
        if event.broker in nodes and event.broker is not None:
            yield NodeSign(
                cluster=facts.cluster,
                at_ms=event.ts_adj,
                node=event.broker,
                sign="stopping",
                file_id=event.file_id,
                line_no=event.line_no,
            )


def migration_states_of(facts: Facts) -> Iterator[MigrationState]:
    """As KRaft's controller logs them, of a migration from ZooKeeper."""
    for event in facts.quorum:
        if event.event == "migration_moved" and event.broker is not None and event.to_state is not None:
            yield MigrationState(
                cluster=facts.cluster,
                at_ms=event.ts_adj,
                controller=event.broker,
                state_before=event.from_state or "",
                state=event.to_state,
                file_id=event.file_id,
                line_no=event.line_no,
            )


def quorum_tenures_of(facts: Facts) -> Iterator[QuorumTenure]:
    """From a controller's own lines; its end is there only where it lived to say so."""
    for event in facts.quorum:
        if event.event != "quorum_activated" or event.broker is None or event.controller_epoch is None:
            continue
        ended = next((one for one in facts.quorum if _ends(one, event)), None)
        yield QuorumTenure(
            cluster=facts.cluster,
            controller_epoch=event.controller_epoch,
            controller=event.broker,
            from_ms=event.ts_adj,
            to_ms=None if ended is None else ended.ts_adj,
            committed_offset=None if ended is None else ended.offset,
            file_id=event.file_id,
            line_no=event.line_no,
        )


def _ends(event: SilverEvent, begun: SilverEvent) -> bool:
    is_its = (event.event, event.broker) == ("quorum_renounced", begun.broker) and event.ts_adj >= begun.ts_adj
    return is_its and event.controller_epoch in (None, begun.controller_epoch)
