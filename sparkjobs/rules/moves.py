"""How partitions and replicas went through their states: each move counted, each stay measured, each replica's life.

Kafka logs the move of one partition, or of one replica, in a line (at TRACE; at its default level since 2.6 only some
of the partition's). Our log puts the same move of many partitions into one line, as bits. Here partitions that have all
their lines in common are one `_Group`. A line about only some of them splits the group. Each conclusion is drawn once
for a group.

A new controller reads the state and logs little of it. So the first line of a term about a subject is believed,
whichever state came before. Within a term a line that begins in another state is out of turn, if all moves of that term
have lines. Moves that no line shows are bounded, not guessed. Pure.

An illegal move is one that Kafka's state machines do not have: a line says that it was done, or that a controller
refused it. A bug of a controller, or a log put together from two clusters, shows here first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from sparkjobs.parse.timestamps import HOUR_MS
from sparkjobs.rules.facts import Facts, Term
from sparkjobs.rules.partitions import epoch_held
from sparkjobs.rules.state_machines import LEGAL, MACHINE_OF, MISPRINTED, NON_EXISTENT, OLDER, UNKNOWN, known_as
from sparkjobs.tables.gold import IllegalTransition, MoveOutOfTurn, ReplicaLife, StateTransition, TimeInState
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
    """Returns the move in a line about one partition. Returns none where our log has a line of its own for the move, or
    where a state was only found."""
    if event.role != "controller" or event.event not in EVENTS or event.to_state not in MACHINE_OF:
        return None
    epoch = epoch_of(event.controller_epoch, event.broker, event.ts_adj, facts)
    if event.cause == "found" or (event.cause_id is not None and epoch in facts.moved_epochs):
        return None
    replica = event.peer_broker if event.event == "replica_changed" else None
    place = (epoch, event.ts_utc, event.file_id, event.line_no)
    return Move(*place, event.ts_adj, replica, event.from_state, event.to_state, event.cause)


def epoch_of(said: int | None, broker: int | None, at_ms: int, facts: Facts) -> int:
    """Returns the controller epoch of a line. Some lines of old controllers lack it; -1: unknown."""
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


class _Group(NamedTuple):
    """Partitions of a topic, or their replicas on one broker, and all lines about them, which are the same."""

    bits: int
    moves: list[Move]


@dataclass(slots=True)
class _StateStays:
    """Of one state."""

    subjects: int = 0
    stays: int = 0
    known_ms: int = 0
    at_most_ms: int = 0
    longest_ms: int = 0
    lasting: int = 0
    unbegun: int = 0

    def add(self, count: int, known_ms: int, at_most_ms: int) -> None:
        """So many stays, each for so long. Clocks that were set back make no time negative."""
        at_most_ms = at_most_ms if at_most_ms > 0 else 0
        known_ms = known_ms if known_ms < at_most_ms else at_most_ms
        self.stays += count
        self.known_ms += count * known_ms if known_ms > 0 else 0
        self.at_most_ms += count * at_most_ms
        self.longest_ms = max(self.longest_ms, at_most_ms)


#: when, where it stands (two columns), topic, partition, replica
_Jump = tuple[int, str, int, str, int, int | None]


class _PossibleMoves(NamedTuple):
    """The moves that can have happened between two lines of two terms, where the second begins in another state than
    the first ended in."""

    until_ms: int  # the first state surely stood until then
    left_ms: int  # and not longer than that
    since_ms: int  # the other one stood since then at the earliest
    found_ms: int  # and surely since then


class _End(NamedTuple):
    """The end of the lines about a subject."""

    epoch: int  # the last that could have had one
    known_ms: int  # until then there would have been one
    at_most_ms: int
    is_of_logs: bool


@dataclass(slots=True)
class MoveTotals:
    """Takes the moves of partition after partition and adds up the sums over all of them."""

    facts: Facts
    _terms: Mapping[int, Term] = field(init=False)
    _is_mixed: bool = field(init=False)
    _transitions: Counter[tuple[str | None, str, str | None, int]] = field(default_factory=Counter)
    _stays: defaultdict[str, _StateStays] = field(default_factory=lambda: defaultdict(_StateStays))
    _jumps: dict[tuple[int, str, str, str], tuple[int, _Jump]] = field(default_factory=dict)
    _lives: list[Row] = field(default_factory=list)

    def take(self, topic: str, partition: int, moves: Iterable[Move]) -> None:
        """All lines about one partition, in any order."""
        by_replica: dict[int | None, list[Move]] = {}
        for move in in_turn(moves):
            by_replica.setdefault(move.replica, []).append(move)
        for its in by_replica.values():
            self._follow(topic, partition, 1, its)

    def take_lines(self, lines: Iterable[SilverEvent]) -> None:
        """All lines about many partitions, in any order. One that was written twice counts once."""
        said: dict[str, list[tuple[Move, int]]] = defaultdict(list)
        for move, partitions in _moves_of_many(lines):
            for topic, bits in partitions:
                said[topic].append((move, bits))
        for topic, its in said.items():
            for group in _groups_in(its):
                self._follow(topic, 0, group.bits, group.moves)

    def rows(self) -> dict[str, list[Row]]:
        """Returns the rows of every table for all moves that were taken."""
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
        known = ((state, found) for state, found in self._stays.items() if state in MACHINE_OF)
        stays: list[Row] = [_row_of(cluster, state, found) for state, found in known]
        tables = {"state_transitions": transitions, "time_in_state": stays, "replica_lives": self._lives}
        return {**tables, "moves_out_of_turn": list(self._jump_rows())}

    def _jump_rows(self) -> Iterator[Row]:
        for (epoch, stood_in, source, target), (times, first) in self._jumps.items():
            at_ms, file_id, line_no, topic, partition, replica = first
            yield MoveOutOfTurn(
                cluster=self.facts.cluster,
                machine=MACHINE_OF[target],
                controller_epoch=epoch,
                stood_in=stood_in,
                source=source,
                target=target,
                times=times,
                at_ms=at_ms,
                topic=topic,
                partition=partition,
                replica=replica,
                file_id=file_id,
                line_no=line_no,
            )

    def __post_init__(self) -> None:
        self._terms = {term.controller_epoch: term for term in self.facts.terms}
        self._is_mixed = bool(self.facts.moved_epochs) and not self._terms.keys() <= self.facts.moved_epochs

    def _follow(self, topic: str, base: int, bits: int, moves: Sequence[Move]) -> None:  # noqa: PLR0915 - one walk, in haste
        """The way of the partitions of these bits, or of their replicas on one broker; `base`: the partition of bit 0.

        A state's time is known from line to line where no move between can be missing.
        """
        facts, all_stays, transitions, told = self.facts, self._stays, self._transitions, self.facts.told_epochs
        count, first, been = bits.bit_count(), moves[0], set[str]()
        epoch, _, _, _, at_ms, replica, source, state, cause = first
        transitions[source, state, cause, at_ms - at_ms % HOUR_MS] += count
        states, moments, is_born, is_unbegun = list[str](), list[int](), source in NON_EXISTENT, source == state
        if source is not None and not is_born and not is_unbegun:
            states.append(source)
            moments.append(at_ms)
            stays = all_stays[source]
            stays.add(count, 0, 0)
            stays.unbegun += count
        if state not in NON_EXISTENT:
            states.append(state)
            moments.append(at_ms)
        since_ms, last_ms, known_ms = at_ms, at_ms, 0
        for move in moves[1:]:
            now, _, _, _, at_ms, _, source, target, cause = move
            if source != state and (source is None or state in MISPRINTED.get((source, target), ())):
                source = state
            transitions[source, target, cause, at_ms - at_ms % HOUR_MS] += count
            is_same = now == epoch
            is_told = now in told if is_same else facts.are_moves_told(epoch, now)
            left_ms, next_ms, next_known_ms = at_ms, at_ms, 0
            if source == state:
                known_ms += at_ms - last_ms if is_told else 0
            elif is_same:
                next_ms = last_ms
                if is_told:
                    self._jumped(state, move, topic, base, bits)
            else:
                seen = self._seen_between(last_ms, epoch, move)
                known_ms += seen.until_ms - last_ms
                left_ms, next_ms, next_known_ms = seen.left_ms, seen.since_ms, at_ms - seen.found_ms
            for entered in (source, target):
                if entered == state or entered is None:
                    continue
                if state not in NON_EXISTENT:
                    stays = all_stays[state]
                    stays.add(count, known_ms, left_ms - since_ms)
                    stays.unbegun += count if is_unbegun else 0
                if entered in NON_EXISTENT:
                    self._lived(topic, base, bits, replica, first, is_born, states, moments, at_ms)
                    been.update(states)
                    states, moments = [], []
                else:
                    if state in NON_EXISTENT:
                        first, is_born = move, source in NON_EXISTENT
                    states.append(entered)
                    moments.append(at_ms)
                state, since_ms, known_ms, is_unbegun = entered, next_ms, next_known_ms, False
                left_ms, next_ms, next_known_ms = at_ms, at_ms, 0
            epoch, last_ms = now, at_ms
        if state not in NON_EXISTENT:
            end = self._end_after(epoch)
            if facts.are_moves_told(epoch, end.epoch):
                known_ms += max(end.known_ms - last_ms, 0)
            stays = all_stays[state]
            stays.add(count, known_ms, end.at_most_ms - since_ms)
            stays.unbegun += count if is_unbegun else 0
            stays.lasting += count if end.is_of_logs else 0
            self._lived(topic, base, bits, replica, first, is_born, states, moments, None)
        been.update(states)
        for name in been:
            all_stays[name].subjects += count

    def _end_after(self, epoch: int) -> _End:
        """Where the way ends of which the last line is of this epoch: with the logs, or where a controller takes over
        that tells moves in the other way. Its lines are another way, as a cluster goes from Kafka's controller to ours
        or back."""
        facts, is_ours = self.facts, epoch in self.facts.moved_epochs
        if self._is_mixed:
            after = [term for term in facts.terms if term.controller_epoch > epoch]
            for before, term in zip((None, *after), after, strict=False):
                if (term.controller_epoch in facts.moved_epochs) != is_ours:
                    last = before or self._terms.get(epoch)
                    known_ms = 0 if last is None else min(last.last_ms, term.from_ms)
                    return _End(term.controller_epoch - 1, known_ms, term.from_ms, is_of_logs=False)
        last_epoch = facts.terms[-1].controller_epoch if facts.terms else -1
        return _End(last_epoch, facts.last_ms if facts.is_end_told else 0, facts.last_ms, is_of_logs=True)

    def _seen_between(self, last_ms: int, epoch: int, move: Move) -> _PossibleMoves:
        """A state is a controller's belief: it ends with the controller's term, and the next controller's begins as it
        loads."""
        at_ms, now = move.at_ms, move.controller_epoch
        before, after, term = self._terms.get(epoch), self.facts.term_after(epoch), self._terms.get(now)
        until_ms, left_ms, since_ms, found_ms = last_ms, at_ms, last_ms, at_ms
        if before is not None and self.facts.are_moves_told(epoch, epoch):
            until_ms = before.last_ms
        if term is not None:
            left_ms = term.from_ms
            if term.ready_ms is not None and self.facts.are_moves_told(now, now):
                found_ms = term.ready_ms
        if after is not None:
            since_ms = after.from_ms
        left_ms = min(max(left_ms, last_ms), at_ms)
        since_ms = min(max(since_ms, last_ms), at_ms)
        return _PossibleMoves(
            min(max(until_ms, last_ms), left_ms), left_ms, since_ms, min(max(found_ms, since_ms), at_ms)
        )

    def _jumped(self, stood_in: str, move: Move, topic: str, base: int, bits: int) -> None:
        """They moved from where they did not stand."""
        key = (move.controller_epoch, stood_in, str(move.source), move.target)
        here = (move.at_ms, move.file_id, move.line_no, topic, base + next(numbers_in(bits)), move.replica)
        times, first = self._jumps.get(key, (0, here))
        self._jumps[key] = (times + bits.bit_count(), first if first[:5] <= here[:5] else here)

    def _lived(
        self,
        topic: str,
        base: int,
        bits: int,
        replica: int | None,
        first: Move,
        is_born: bool,
        states: Sequence[str],
        moments: Sequence[int],
        to_ms: int | None,
    ) -> None:
        """To the end of their lives or of the logs."""
        if replica is None or not states:
            return
        whole = {"states": tuple(states), "since_ms": tuple(moments), "from_ms": moments[0], "to_ms": to_ms}
        for number in numbers_in(bits):
            self._lives.append(
                ReplicaLife(
                    cluster=self.facts.cluster,
                    topic=topic,
                    partition=base + number,
                    broker=replica,
                    is_begun=is_born,
                    file_id=first.file_id,
                    line_no=first.line_no,
                    **whole,  # type: ignore[arg-type]
                )
            )


def _groups_in(said: Iterable[tuple[Move, int]]) -> Iterator[_Group]:
    """Lines about partitions of one topic, as bits: which of them went the same way, and by which lines."""
    groups: dict[int | None, list[_Group]] = defaultdict(list)
    for move, bits in said:
        its, rest = groups[move.replica], bits
        for number, group in enumerate(list(its)):
            both = group.bits & rest
            if not both:
                continue
            if both == group.bits:
                group.moves.append(move)
            else:
                its[number] = group._replace(bits=group.bits ^ both)
                its.append(_Group(both, [*group.moves, move]))
            rest ^= both
            if not rest:
                break
        if rest:
            its.append(_Group(rest, [move]))
    for its in groups.values():
        yield from its


def times_of(lines: Iterable[SilverEvent]) -> dict[tuple[str | None, str, str | None], tuple[int, int]]:
    """Of lines about many partitions: how often which move was made for which cause, and when last."""
    found: dict[tuple[str | None, str, str | None], tuple[int, int]] = {}
    for move, partitions in _moves_of_many(lines):
        key = (move.source, move.target, move.cause)
        times, last_ms = found.get(key, (0, move.at_ms))
        found[key] = (times + sum(bits.bit_count() for _, bits in partitions), max(last_ms, move.at_ms))
    return found


def _moves_of_many(lines: Iterable[SilverEvent]) -> Iterator[tuple[Move, list[tuple[str, int]]]]:
    """In the order in which controllers wrote them, with the partitions of each topic as bits. A line that was written
    twice counts once."""
    moves = {move: event for event in lines if (move := _move_of_many(event)) is not None}
    seen = set[tuple[object, ...]]()
    for move in in_turn(moves):
        event = moves[move]
        name = (event.controller_epoch, event.cause_id, event.part)
        if None not in name and name in seen:
            continue
        seen.add(name)
        split = (text.rpartition(" ") for text in event.partitions or ())
        yield move, [(topic, bits_of(ranges)) for topic, _, ranges in split]


def _move_of_many(event: SilverEvent) -> Move | None:
    if event.event != OF_MANY or event.to_state not in MACHINE_OF:
        return None
    epoch = -1 if event.controller_epoch is None else event.controller_epoch
    place = (epoch, event.ts_utc, event.file_id, event.line_no)
    return Move(*place, event.ts_adj, event.peer_broker, event.from_state, event.to_state, event.cause)


def _row_of(cluster: str, state: str, found: _StateStays) -> TimeInState:
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
    """Returns the earlier one, for both."""
    first = min(one, other, key=lambda row: (row.at_ms, row.file_id, row.line_no, row.topic, row.partition))
    return msgspec.structs.replace(first, times=one.times + other.times)


_Together = Callable[[Sequence[Any]], Row]
#: the columns that identify a row of each table, and how several rows become one
_ADDED: Final[Mapping[str, tuple[Callable[[Any], tuple[object, ...]], _Together]]] = {
    "state_transitions": (attrgetter("cluster", "source", "target", "cause", "hour_ms"), _transitions_together),
    "time_in_state": (attrgetter("cluster", "state"), _times_together),
    "moves_out_of_turn": (attrgetter("cluster", "controller_epoch", "stood_in", "source", "target"), _jumps_together),
}


ILLEGAL_EVENTS: Final = frozenset(
    {"partition_changed", "partition_change_failed", "replica_changed", "replica_change_failed"}
)

#: pairs that are no finding
NO_FINDING: Final = LEGAL | OLDER.keys()
_REFUSAL: Final = "IllegalStateException"


def is_illegal(event: SilverEvent) -> bool:
    """A line that does not say where it came from cannot be judged."""
    if event.event in ("partition_change_failed", "replica_change_failed"):
        return _REFUSAL in (event.trace or "")
    if event.event not in ILLEGAL_EVENTS or event.from_state is None or event.to_state is None:
        return False
    return known_as(event.from_state, event.to_state) == UNKNOWN


def illegal_transitions_of(events: Iterable[SilverEvent]) -> Iterator[IllegalTransition]:
    """Of events of any partition, in any order."""
    for event in events:
        if is_illegal(event):
            yield IllegalTransition(
                cluster=event.cluster,
                topic=str(event.topic),
                partition=-1 if event.partition is None else event.partition,
                at_ms=event.ts_adj,
                machine="replica" if event.event.startswith("replica") else "partition",
                replica=event.peer_broker,
                controller_epoch=event.controller_epoch,
                from_state=event.from_state,
                to_state=event.to_state,
                how="refused" if event.event.endswith("failed") else "done",
                file_id=event.file_id,
                line_no=event.line_no,
            )


def illegal_moves_of_many(lines: Iterable[SilverEvent]) -> Iterator[IllegalTransition]:
    """Of our lines about moves: a row for each topic that such a line names."""
    for event in lines:
        if event.event != OF_MANY or known_as(event.from_state, str(event.to_state)) != UNKNOWN:
            continue
        for text in event.partitions or ():
            topic, _, ranges = text.rpartition(" ")
            bits = bits_of(ranges)
            yield IllegalTransition(
                cluster=event.cluster,
                topic=topic,
                partition=next(numbers_in(bits)),
                at_ms=event.ts_adj,
                machine=event.machine or "partition",
                replica=event.peer_broker,
                controller_epoch=event.controller_epoch,
                from_state=event.from_state,
                to_state=event.to_state,
                how="done",
                partitions=bits.bit_count(),
                file_id=event.file_id,
                line_no=event.line_no,
            )
