"""The states of each partition's znode, version by version: leader, epoch, in-sync replicas.

The first line that mentions a version gives its row: a line of the controller that wrote it, or of the leader that
asked for it. A row lasts until the next version, or until the partition is deleted. The write itself came before the
first line that knows it, and after the version before was known: versions order, clocks do not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sparkjobs.rules.facts import Facts
from sparkjobs.rules.partitions import (
    Lives,
    lives_of,
    with_epoch,
)
from sparkjobs.rules.state_machines import GONE
from sparkjobs.tables.gold import IsrState, UncleanElection
from sparkjobs.tables.silver import SilverEvent

EVENTS: Final = frozenset(
    {"partition_changed", "isr_changed", "leader_started", "request_sent", "reassignment_step", "unclean_elected"}
)


@dataclass(slots=True)
class _State:
    life: int
    version: int
    first: SilverEvent
    from_ms: int
    leader: int | None = None
    leader_epoch: int | None = None
    isr: tuple[int, ...] | None = None
    controller_epoch: int | None = None
    topic_id: str | None = None
    is_recovering: bool = False

    def learn(self, event: SilverEvent) -> None:
        """Lines come in order of time: where they contradict each other the earlier one is believed."""
        leader = event.broker if event.leader is None and event.role != "controller" else event.leader
        self.leader = leader if self.leader is None else self.leader
        self.leader_epoch = event.leader_epoch if self.leader_epoch is None else self.leader_epoch
        self.isr = event.isr if self.isr is None else self.isr
        self.topic_id = event.topic_id if self.topic_id is None else self.topic_id
        if event.role == "controller" and event.event in ("partition_changed", "isr_changed"):
            known = self.controller_epoch
            epoch = event.controller_epoch
            self.controller_epoch = epoch if known is None or (epoch is not None and epoch < known) else known
        self.is_recovering |= event.recovery == "RECOVERING"


def isr_timeline_of(events: Sequence[SilverEvent], facts: Facts) -> Iterator[IsrState]:
    """Of one partition; `events` in any order."""
    states = _states_of(events)
    ends = _ends_of(events, facts)
    for index, state in enumerate(states):
        before = states[index - 1] if index and states[index - 1].life == state.life else None
        after = states[index + 1] if index + 1 < len(states) else None
        to_ms = after.from_ms if after is not None and after.life == state.life else None
        if to_ms is None:
            to_ms = next((ms for ms in ends if ms >= state.from_ms), None if after is None else after.from_ms)
        if state.isr is None:
            continue
        first = state.first
        yield IsrState(
            cluster=first.cluster,
            topic=str(first.topic),
            partition=-1 if first.partition is None else first.partition,
            version=state.version,
            from_ms=state.from_ms,
            from_lo_ms=state.from_ms if before is None else min(before.from_ms, state.from_ms),
            to_ms=to_ms,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            controller_epoch=state.controller_epoch,
            topic_id=state.topic_id,
            said_by="controller" if first.role == "controller" else "leader",
            file_id=first.file_id,
            line_no=first.line_no,
        )


def _states_of(events: Sequence[SilverEvent]) -> list[_State]:
    """In the order of their versions. A leader does not say its epoch; an ISR change keeps the one before."""
    lives = lives_of(events)
    found: dict[tuple[int, int], _State] = {}
    for event in sorted(events, key=_by_time):
        if event.version is None or event.version < 0 or event.event not in EVENTS:
            continue
        if event.isr is None and event.leader_epoch is None:
            continue
        key = (lives.of(event), event.version)
        if key not in found:
            found[key] = _State(*key, first=event, from_ms=event.ts_adj)
        found[key].learn(event)
    states = [found[key] for key in sorted(found)]
    for before, state in itertools.pairwise(states):
        if before.life == state.life and before.version + 1 == state.version:
            state.leader_epoch = before.leader_epoch if state.leader_epoch is None else state.leader_epoch
            state.leader = before.leader if state.leader is None else state.leader
            state.isr = before.isr if state.isr is None else state.isr
    _inherit_ids(states, lives)
    return states


def _by_time(event: SilverEvent) -> tuple[int, str]:
    return event.ts_adj, event.event_id


def _inherit_ids(states: Sequence[_State], lives: Lives) -> None:
    """All states of one life are of one topic id, whichever line has it."""
    ids = {state.life: state.topic_id for state in states if state.topic_id is not None}
    for state in states:
        state.topic_id = lives.topic_ids[state.life] if lives.topic_ids else ids.get(state.life)


def _ends_of(events: Sequence[SilverEvent], facts: Facts) -> list[int]:
    topic = str(events[0].topic) if events else ""
    said = [e.ts_adj for e in events if e.event == "partition_changed" and e.to_state == GONE]
    return sorted([*said, *facts.deleted.get(topic, ())])


def _is_surely_clean(events: Iterable[SilverEvent]) -> bool:
    """Returns whether every named leader is in every named ISR, and no line says otherwise. Most partitions are like
    this, and then the versions need not be told apart."""
    leaders, isrs = set[int](), set[tuple[int, ...]]()
    for event in events:
        if event.recovery == "RECOVERING" or event.event == "unclean_elected" or event.unclean:
            return False
        leader = event.broker if event.leader is None and event.role != "controller" else event.leader
        if leader is not None and leader >= 0:
            leaders.add(leader)
        if event.isr is not None:
            isrs.add(event.isr)
    return all(leaders.issubset(isr) for isr in isrs)


def unclean_elections_of(events: Sequence[SilverEvent], facts: Facts) -> Iterator[UncleanElection]:
    """Elections after which data may be missing. Derived ones only where the version before is known for certain."""
    if _is_surely_clean(events):
        return
    states = _states_of(events)
    ordered = sorted(events, key=_by_time)
    confessed = [e for e in ordered if e.event == "unclean_elected" or e.unclean]
    warned = [e for e in confessed if e.event == "unclean_elected" and e.version is None]
    unmatched = {e.event_id: e for e in warned}
    for before, state in zip((None, *states), states, strict=False):
        is_new_epoch = before is None or before.leader_epoch != state.leader_epoch
        if state.leader is None or state.leader < 0 or not is_new_epoch:
            continue
        since_ms = 0 if before is None else before.from_ms
        said = [e for e in confessed if e.version == state.version]
        said += [e for e in warned if e.leader == state.leader and since_ms <= e.ts_adj <= state.from_ms]
        for event in said:
            unmatched.pop(event.event_id, None)
        follows = before is not None and (before.life, before.version + 1) == (state.life, state.version)
        is_outside = follows and before is not None and before.isr is not None and state.leader not in before.isr
        proof = "said" if said else "recovering" if state.is_recovering else "derived" if is_outside else None
        if proof is not None:
            isr_before = before.isr if follows and before is not None else None
            yield _unclean(state, isr_before, proof, said[0] if said else state.first)
    # 0.8 and 0.9 print no versions, so that there are no states that a warning could be about
    yield from (_only_said(e, facts) for e in unmatched.values() if e.leader is not None and e.leader >= 0)


def _unclean(state: _State, isr_before: tuple[int, ...] | None, proof: str, place: SilverEvent) -> UncleanElection:
    assert state.leader is not None
    return UncleanElection(
        cluster=state.first.cluster,
        topic=str(state.first.topic),
        partition=-1 if state.first.partition is None else state.first.partition,
        at_ms=state.from_ms,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr_before=isr_before,
        proof=proof,
        file_id=place.file_id,
        line_no=place.line_no,
    )


def _only_said(event: SilverEvent, facts: Facts) -> UncleanElection:
    """Returns an unclean election that one line reports while no other line gives the state of that time."""
    assert event.leader is not None
    return UncleanElection(
        cluster=event.cluster,
        topic=str(event.topic),
        partition=-1 if event.partition is None else event.partition,
        at_ms=event.ts_adj,
        controller_epoch=with_epoch(event, facts.terms).controller_epoch,
        leader=event.leader,
        leader_epoch=event.leader_epoch,
        proof="said",
        file_id=event.file_id,
        line_no=event.line_no,
    )
