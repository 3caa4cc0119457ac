"""How partitions and replicas went through their states: each move counted, each stay measured, each replica's life.

Kafka tells the move of one partition, or of one replica, in a line (at TRACE; at its default level since 2.6 only some
of the partition's). Our log tells one move of many in a line, which is walked through as a set of bits: partitions of
which all lines said the same are one `_Group`, and are parted where a line is about some of them only.

A new controller looks at what is there and says nothing of most of it. So the first line of a term about a subject is
believed, whatever it stood in before; within a term a line that begins elsewhere is out of turn, if all moves of that
term have lines. What may have happened unseen is bounded, not guessed. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from sparkjobs.parse.moments import HOUR_MS
from sparkjobs.rules.facts import Facts, Term
from sparkjobs.rules.partitions import epoch_held
from sparkjobs.rules.state_machines import MACHINE_OF, MISPRINTED, NON_EXISTENT, known_as
from sparkjobs.tables.gold import MoveOutOfTurn, ReplicaLife, StateTransition, TimeInState
from sparkjobs.tables.silver import Row, SilverEvent

#: lines about one partition
EVENTS: Final = frozenset({"partition_changed", "replica_changed"})
#: of a move, its place in the order
_PLACE: Final = itemgetter(slice(0, 4))
#: lines of ours about many
OF_MANY: Final = "states_moved"
#: tables that are added up over partitions
ADDED_UP: Final = ("state_transitions", "time_in_state", "moves_out_of_turn")
TABLES: Final = (*ADDED_UP, "replica_lives")


class Move(NamedTuple):
    """One line; the first four are its order, as far as one file goes."""

    controller_epoch: int
    ts_utc: int
    file_id: str
    line_no: int
    at_ms: int
    replica: int | None  # the broker it is on; none: it is the partition that moves
    source: str | None
    target: str
    cause: str | None = None


def move_in(event: SilverEvent, facts: Facts) -> Move | None:
    """What a line about one partition says; none where our log tells the same move in a line of its own, or where a
    state was only found."""
    if event.role != "controller" or event.event not in EVENTS or event.to_state not in MACHINE_OF:
        return None
    epoch = epoch_of(event.controller_epoch, event.broker, event.ts_adj, facts)
    if event.cause == "found" or (event.cause_id is not None and epoch in facts.moved_epochs):
        return None
    replica = event.peer_broker if event.event == "replica_changed" else None
    place = (epoch, event.ts_utc, event.file_id, event.line_no)
    return Move(*place, event.ts_adj, replica, event.from_state, event.to_state, event.cause)


def epoch_of(said: int | None, broker: int | None, at_ms: int, facts: Facts) -> int:
    """The controller epoch of a line; some of old controllers do not say it. -1: nobody knows."""
    epoch = epoch_held(broker, at_ms, facts.terms) if said is None else said
    return -1 if epoch is None else epoch


def in_turn(moves: Iterable[Move]) -> list[Move]:
    """In the order in which one controller after the other wrote them. Where a log was rotated within a millisecond,
    the file goes first that began first."""
    ordered = sorted(moves, key=_PLACE)
    if len({move.file_id for move in ordered}) < 2:
        return ordered
    spans: dict[tuple[int, str], list[int]] = defaultdict(list)
    for move in ordered:
        spans[move.controller_epoch, move.file_id].append(move.ts_utc)

    def turn(move: Move) -> tuple[object, ...]:
        of_file = spans[move.controller_epoch, move.file_id]
        return move.controller_epoch, move.ts_utc, of_file[0], of_file[-1], move.file_id, move.line_no

    return sorted(ordered, key=turn)


def bits_of(ranges: str) -> int:
    """Partitions as our log writes them, `0-4,7`, a bit for each."""
    bits = 0
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        start, end = int(first), int(last or first)
        bits |= ((1 << (end - start + 1)) - 1) << start
    return bits


def numbers_in(bits: int) -> Iterator[int]:
    """The bits that are set, in order."""
    row = bin(bits)[:1:-1]
    number = row.find("1")
    while number >= 0:
        yield number
        number = row.find("1", number + 1)


@dataclass(slots=True)
class _Group:
    """Partitions of a topic, or their replicas on one broker, of which all lines so far said the same."""

    bits: int
    state: str
    since_ms: int  # not before that they came into it
    known_ms: int  # for so long they stood in it for certain
    last_ms: int  # the last line about them
    epoch: int
    first: Move  # of this life
    is_unbegun: bool  # no line tells when they came into this state
    is_born: bool = False
    been: frozenset[str] = frozenset()
    states: tuple[str, ...] = ()
    moments: tuple[int, ...] = ()

    def remember(self, state: str, at_ms: int) -> None:
        self.been |= {state}
        self.states, self.moments = (*self.states, state), (*self.moments, at_ms)


@dataclass(slots=True)
class _Stays:
    """Of one state."""

    subjects: int = 0
    stays: int = 0
    known_ms: int = 0
    at_most_ms: int = 0
    longest_ms: int = 0
    lasting: int = 0
    unbegun: int = 0


class _Seen(NamedTuple):
    """What can have happened between two lines of which the second begins elsewhere than the first ended."""

    until_ms: int  # the first state surely stood until then
    left_ms: int  # and not longer than that
    since_ms: int  # the other one stood since then at the earliest
    found_ms: int  # and surely since then


@dataclass(slots=True)
class MoveBook:
    """Takes the moves of partition after partition and adds up what is asked of all of them."""

    facts: Facts
    _terms: Mapping[int, Term] = field(init=False)
    _transitions: Counter[tuple[str | None, str, str | None, int]] = field(default_factory=Counter)
    _stays: defaultdict[str, _Stays] = field(default_factory=lambda: defaultdict(_Stays))
    _out_of_turn: dict[tuple[int, str, str, str], MoveOutOfTurn] = field(default_factory=dict)
    _lives: list[Row] = field(default_factory=list)

    def take(self, topic: str, partition: int, moves: Iterable[Move]) -> None:
        """All lines about one partition, in any order."""
        walk = _Walk(self, topic, partition)
        for move in in_turn(moves):
            walk.see(move, 1)
        walk.finish()

    def take_lines(self, lines: Iterable[SilverEvent]) -> None:
        """All lines about many partitions, in any order. One that was written twice counts once."""
        said: dict[str, list[tuple[Move, int]]] = defaultdict(list)
        moves = {move: event for event in lines if (move := _move_of_many(event)) is not None}
        seen = set[tuple[object, ...]]()
        for move in in_turn(moves):
            event = moves[move]
            name = (event.controller_epoch, event.cause_id, event.part)
            if None not in name and name in seen:
                continue
            seen.add(name)
            for text in event.partitions or ():
                topic, _, ranges = text.rpartition(" ")
                said[topic].append((move, bits_of(ranges)))
        for topic, its in said.items():
            walk = _Walk(self, topic, 0)
            for move, bits in its:
                walk.see(move, bits)
            walk.finish()

    def rows(self) -> dict[str, list[Row]]:
        """What became of all that was taken."""
        cluster = self.facts.cluster
        transitions: list[Row] = [
            StateTransition(
                cluster=cluster,
                machine=MACHINE_OF[target],
                source=source,
                target=target,
                cause=cause,
                hour_ms=hour_ms,
                times=times,
                known_as=known_as(source, target),
            )
            for (source, target, cause, hour_ms), times in self._transitions.items()
        ]
        stays: list[Row] = [_row_of(cluster, state, found) for state, found in self._stays.items()]
        tables = {"state_transitions": transitions, "time_in_state": stays, "replica_lives": self._lives}
        return {**tables, "moves_out_of_turn": list(self._out_of_turn.values())}

    def __post_init__(self) -> None:
        self._terms = {term.controller_epoch: term for term in self.facts.terms}

    # what a walk asks and says

    def seen_between(self, group: _Group, move: Move) -> _Seen:
        """A state is what a controller holds for true: it ends with its term, and the next one's begin as it loads."""
        last_ms, at_ms = group.last_ms, move.at_ms
        if group.epoch == move.controller_epoch:
            return _Seen(last_ms, at_ms, last_ms, at_ms)
        before, now = self._terms.get(group.epoch), self._terms.get(move.controller_epoch)
        after = self.facts.term_after(group.epoch)
        until_ms, left_ms, since_ms, found_ms = last_ms, at_ms, last_ms, at_ms
        if before is not None and self.facts.are_moves_told(group.epoch, group.epoch):
            until_ms = before.last_ms
        if now is not None:
            left_ms = now.from_ms
            if now.ready_ms is not None and self.facts.are_moves_told(move.controller_epoch, move.controller_epoch):
                found_ms = now.ready_ms
        if after is not None:
            since_ms = after.from_ms
        left_ms = min(max(left_ms, last_ms), at_ms)
        since_ms = min(max(since_ms, last_ms), at_ms)
        return _Seen(min(max(until_ms, last_ms), left_ms), left_ms, since_ms, min(max(found_ms, since_ms), at_ms))

    def moved(self, source: str | None, move: Move, count: int) -> None:
        """So many did."""
        self._transitions[source, move.target, move.cause, move.at_ms // HOUR_MS * HOUR_MS] += count

    def stayed(self, state: str, count: int, known_ms: int, at_most_ms: int) -> _Stays:
        """So many did, each for so long."""
        stays, known_ms, at_most_ms = self._stays[state], max(known_ms, 0), max(at_most_ms, 0)
        stays.stays += count
        stays.known_ms += count * min(known_ms, at_most_ms)
        stays.at_most_ms += count * at_most_ms
        stays.longest_ms = max(stays.longest_ms, at_most_ms)
        return stays

    def jumped(self, stood_in: str, move: Move, topic: str, partition: int, count: int) -> None:
        """So many moved from where they did not stand."""
        assert move.source is not None
        row = MoveOutOfTurn(
            cluster=self.facts.cluster,
            machine=MACHINE_OF[move.target],
            controller_epoch=move.controller_epoch,
            stood_in=stood_in,
            source=move.source,
            target=move.target,
            times=count,
            at_ms=move.at_ms,
            topic=topic,
            partition=partition,
            replica=move.replica,
            file_id=move.file_id,
            line_no=move.line_no,
        )
        key = (move.controller_epoch, stood_in, move.source, move.target)
        self._out_of_turn[key] = _first_of(self._out_of_turn[key], row) if key in self._out_of_turn else row

    def lived(self, group: _Group, topic: str, base: int, to_ms: int | None) -> None:
        """The replicas of a group, to the end of their lives or of the logs."""
        first = group.first
        if first.replica is None or not group.states:
            return
        for number in numbers_in(group.bits):
            self._lives.append(
                ReplicaLife(
                    cluster=self.facts.cluster,
                    topic=topic,
                    partition=base + number,
                    broker=first.replica,
                    from_ms=group.moments[0],
                    to_ms=to_ms,
                    is_begun=group.is_born,
                    states=group.states,
                    since_ms=group.moments,
                    file_id=first.file_id,
                    line_no=first.line_no,
                )
            )

    def been_in(self, group: _Group) -> None:
        """All states of theirs are known."""
        for state in group.been:
            self._stays[state].subjects += group.bits.bit_count()


@dataclass(slots=True)
class _Walk:
    """Goes through the moves of one topic, or of one partition of it, in order. `base`: the partition of bit 0."""

    book: MoveBook
    topic: str
    base: int
    groups: dict[int | None, list[_Group]] = field(default_factory=lambda: defaultdict(list))

    def see(self, move: Move, bits: int) -> None:
        """One line more."""
        groups, rest = self.groups[move.replica], bits
        for group in list(groups):
            both = group.bits & rest
            if not both:
                continue
            if both != group.bits:
                group.bits ^= both
                group = replace(group, bits=both)  # noqa: PLW2901
                groups.append(group)
            self._step(group, move)
            rest ^= both
            if not rest:
                return
        groups.append(self._begun(move, rest))

    def finish(self) -> None:
        """There are no more lines."""
        facts = self.book.facts
        last_epoch = facts.terms[-1].controller_epoch if facts.terms else -1
        for group in (one for groups in self.groups.values() for one in groups):
            if group.state not in NON_EXISTENT:
                if facts.is_end_told and facts.are_moves_told(group.epoch, last_epoch):
                    group.known_ms += facts.last_ms - group.last_ms
                self._end_stay(group, facts.last_ms).lasting += group.bits.bit_count()
                self.book.lived(group, self.topic, self.base, None)
            self.book.been_in(group)

    def _begun(self, move: Move, bits: int) -> _Group:
        """The first line about these: since when they had stood where it begins, nobody knows."""
        at_ms, source = move.at_ms, move.source
        is_unbegun, is_born = source == move.target, source in NON_EXISTENT
        group = _Group(bits, move.target, at_ms, 0, at_ms, move.controller_epoch, move, is_unbegun, is_born)
        self.book.moved(source, move, bits.bit_count())
        if source is not None and source not in NON_EXISTENT and not is_unbegun:
            group.remember(source, at_ms)
            self.book.stayed(source, bits.bit_count(), 0, 0).unbegun += bits.bit_count()
        if move.target not in NON_EXISTENT:
            group.remember(move.target, at_ms)
        return group

    def _step(self, group: _Group, move: Move) -> None:
        before, at_ms, count = group.state, move.at_ms, group.bits.bit_count()
        is_told = self.book.facts.are_moves_told(group.epoch, move.controller_epoch)
        is_misprint = move.source is None or before in MISPRINTED.get((move.source, move.target), ())
        source = before if is_misprint or move.source is None else move.source
        self.book.moved(source, move, count)
        if source == before:
            group.known_ms += at_ms - group.last_ms if is_told else 0
        else:
            if is_told and group.epoch == move.controller_epoch:
                self.book.jumped(before, move, self.topic, self.base + next(numbers_in(group.bits)), count)
            seen = self.book.seen_between(group, move)
            group.known_ms += seen.until_ms - group.last_ms
            self._stand(group, source, seen.left_ms, move)
            group.since_ms, group.known_ms = seen.since_ms, at_ms - seen.found_ms
        if group.state != move.target:
            self._stand(group, move.target, at_ms, move)
        group.last_ms, group.epoch = at_ms, move.controller_epoch

    def _stand(self, group: _Group, state: str, left_ms: int, move: Move) -> None:
        """In another state from now on. `left_ms`: they had left the one before by then."""
        at_ms = move.at_ms
        if group.state not in NON_EXISTENT:
            self._end_stay(group, left_ms)
        if state in NON_EXISTENT:
            self.book.lived(group, self.topic, self.base, at_ms)
            group.states, group.moments = (), ()
        else:
            if group.state in NON_EXISTENT:
                group.first, group.is_born = move, move.source in NON_EXISTENT
            group.remember(state, at_ms)
        group.state, group.since_ms, group.known_ms, group.is_unbegun = state, at_ms, 0, False

    def _end_stay(self, group: _Group, at_ms: int) -> _Stays:
        stays = self.book.stayed(group.state, group.bits.bit_count(), group.known_ms, at_ms - group.since_ms)
        stays.unbegun += group.bits.bit_count() if group.is_unbegun else 0
        return stays


def _move_of_many(event: SilverEvent) -> Move | None:
    if event.event != OF_MANY or event.to_state not in MACHINE_OF:
        return None
    epoch = -1 if event.controller_epoch is None else event.controller_epoch
    place = (epoch, event.ts_utc, event.file_id, event.line_no)
    return Move(*place, event.ts_adj, event.peer_broker, event.from_state, event.to_state, event.cause)


def _row_of(cluster: str, state: str, found: _Stays) -> TimeInState:
    return TimeInState(
        cluster=cluster,
        machine=MACHINE_OF[state],
        state=state,
        subjects=found.subjects,
        stays=found.stays,
        known_ms=found.known_ms,
        at_most_ms=found.at_most_ms,
        longest_ms=found.longest_ms,
        lasting=found.lasting,
        unbegun=found.unbegun,
        evidence=_evidence(found.known_ms, found.at_most_ms, found.unbegun),
    )


def _evidence(known_ms: int, at_most_ms: int, unbegun: int) -> str:
    return "unknown" if unbegun else "exact" if known_ms == at_most_ms else "bounded"


def added_up(name: str, rows: Iterable[Any]) -> list[Row]:
    """Rows of parts of a cluster as one row for each thing that is counted."""
    key, together = _ADDED[name]
    groups: dict[tuple[object, ...], list[Any]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return [together(group) for group in groups.values()]


def _transitions_together(rows: Sequence[StateTransition]) -> StateTransition:
    return msgspec.structs.replace(rows[0], times=sum(row.times for row in rows))


def _times_together(rows: Sequence[TimeInState]) -> TimeInState:
    summed = ("subjects", "stays", "known_ms", "at_most_ms", "lasting", "unbegun")
    total = {name: sum(getattr(row, name) for row in rows) for name in summed}
    evidence = _evidence(total["known_ms"], total["at_most_ms"], total["unbegun"])
    return msgspec.structs.replace(rows[0], **total, longest_ms=max(row.longest_ms for row in rows), evidence=evidence)


def _jumps_together(rows: Sequence[MoveOutOfTurn]) -> MoveOutOfTurn:
    found = rows[0]
    for row in rows[1:]:
        found = _first_of(found, row)
    return found


def _first_of(one: MoveOutOfTurn, other: MoveOutOfTurn) -> MoveOutOfTurn:
    """The earlier one, for both."""
    first = min(one, other, key=lambda row: (row.at_ms, row.file_id, row.line_no, row.topic, row.partition))
    return msgspec.structs.replace(first, times=one.times + other.times)


_Together = Callable[[Sequence[Any]], Row]
#: what a row of each table counts, and how several become one
_ADDED: Final[Mapping[str, tuple[Callable[[Any], tuple[object, ...]], _Together]]] = {
    "state_transitions": (attrgetter("cluster", "source", "target", "cause", "hour_ms"), _transitions_together),
    "time_in_state": (attrgetter("cluster", "state"), _times_together),
    "moves_out_of_turn": (attrgetter("cluster", "controller_epoch", "stood_in", "source", "target"), _jumps_together),
}
