"""The facts that logs add to a record: when brokers acted, lost records, void lines, and differences of clocks. Pure.

A broker's line names leader epoch and partition epoch. These name one record, independent of all clocks. A controller's
line of a fencing is compared with the record of the same controller, since both have its clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec

from sparkjobs.history.departures import departures_of, explained, takeovers_of
from sparkjobs.history.migration import DRIVEN
from sparkjobs.tables.record import RecordClock, RecordElection, RecordFencing, RecordLoss
from sparkjobs.tables.silver import Row

Tables = Mapping[str, Sequence[Any]]
#: between a controller's line and the record of the same decision, by one clock: a batch lingers some 25 ms
_ONE_DECISION_MS: Final = 1_000


def joined(records: Tables, logs: Tables) -> dict[str, list[Row]]:
    """Returns the record's tables with the answers from logs. Both name a cluster alike."""
    found: dict[str, list[Any]] = {name: list(rows) for name, rows in records.items()}
    roles = _Roles(logs.get("replica_roles", ()))
    elections = list(_with_acts(found["record_elections"], roles))
    acted = {(_name(one), one.at_ms, one.leader): one.acted_ms for one in elections}
    found["record_elections"] = elections
    found["record_outages"] = [
        msgspec.structs.replace(one, acted_ms=acted.get((_name(one), one.to_ms, one.leader)))
        for one in found["record_outages"]
    ]
    seats = {(one.cluster, one.controller_epoch, one.controller): one for one in logs.get("quorum_tenures", ())}
    found["record_tenures"] = [_with_its_words(one, seats) for one in found["record_tenures"]]
    found["record_migration_phases"] = list(_dated(found["record_migration_phases"], logs.get("migration_states", ())))
    found["record_losses"] = list(_losses(elections, _last_leaders(found["record_partition_states"], elections), roles))
    found["record_fencings"] = list(_fencings(logs.get("fencings", ()), found))
    found["record_departures"] = list(departures_of(found, logs))
    found["record_takeovers"] = list(takeovers_of(found, logs))
    found["record_outages"] = list(explained(found["record_outages"], found["record_departures"]))
    found["record_clocks"] = list(_clocks(found["record_partition_states"], found["record_tenures"], roles))
    return found


def _dated(phases: Sequence[Any], states: Sequence[Any]) -> Iterator[Any]:
    """With the controller's own lines: the first of a state. They date a phase where the record does not."""
    said: dict[str, int] = {}
    for one in sorted(states, key=lambda one: one.at_ms):
        if (phase := DRIVEN.get(one.state)) is not None:
            said.setdefault(phase, one.at_ms)
    dated = [
        one
        if (at_ms := said.get(one.phase)) is None
        else msgspec.structs.replace(one, logged_ms=at_ms)
        if one.from_ms is not None
        else msgspec.structs.replace(one, logged_ms=at_ms, from_ms=at_ms, grade="logged")
        for one in phases
    ]
    for one, after in zip(dated, [*dated[1:], None], strict=False):
        is_open = one.to_ms is None and after is not None and after.from_ms is not None
        yield msgspec.structs.replace(one, to_ms=after.from_ms) if is_open and after is not None else one


_Name = tuple[str, str, int]


def _name(row: Any) -> _Name:
    return row.cluster, row.topic, row.partition


class _Roles:
    """The roles that brokers reported."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self._by_partition: dict[_Name, list[Any]] = defaultdict(list)
        self._led: dict[tuple[_Name, int, int], list[Any]] = defaultdict(list)
        for one in sorted(rows, key=lambda one: (one.leader_epoch, one.at_ms, one.file_id, one.line_no)):
            self._by_partition[_name(one)].append(one)
            if one.role == "leader":
                self._led[_name(one), one.broker, one.leader_epoch].append(one)

    def of(self, name: _Name) -> Sequence[Any]:
        """By leader epoch, then by time."""
        return self._by_partition.get(name, ())

    def led(self, name: _Name, broker: int, leader_epoch: int) -> Sequence[Any]:
        """Returns its lines that it leads at this epoch, by time."""
        return self._led.get((name, broker, leader_epoch), ())


def _with_acts(elections: Sequence[RecordElection], roles: _Roles) -> Iterator[RecordElection]:
    """Where a topic was made anew under its old name, epochs begin anew: then time decides."""
    following: dict[Any, int] = {}
    until: list[int | None] = []
    for one in reversed(elections):
        key = (_name(one), one.leader, one.leader_epoch)
        until.append(following.get(key))
        following[key] = one.at_ms
    counts: dict[Any, int] = defaultdict(int)
    for one in elections:
        counts[_name(one), one.leader, one.leader_epoch] += 1
    for one, until_ms in zip(elections, reversed(until), strict=True):
        is_once = counts[_name(one), one.leader, one.leader_epoch] == 1
        own = roles.led(_name(one), one.leader, one.leader_epoch)
        line = next(
            (
                role
                for role in own
                if is_once or (one.at_ms <= role.at_ms and (until_ms is None or role.at_ms < until_ms))
            ),
            None,
        )
        yield one if line is None else msgspec.structs.replace(one, acted_ms=line.at_ms, offset=line.offset)


def _with_its_words(tenure: Any, seats: Mapping[Any, Any]) -> Any:
    seat = seats.get((tenure.cluster, tenure.epoch, tenure.controller)) if tenure.mode == "kraft" else None
    return tenure if seat is None else msgspec.structs.replace(tenure, active_ms=seat.from_ms, renounced_ms=seat.to_ms)


def _last_leaders(states: Sequence[Any], elections: Sequence[Any]) -> dict[tuple[_Name, int], int | None]:
    """Returns the leader before each unclean election, by name and position: that broker acknowledged records."""
    wanted = {_name(one) for one in elections if one.unclean}
    led: dict[_Name, list[Any]] = defaultdict(list)
    for one in states:
        if one.leader is not None and _name(one) in wanted:
            led[_name(one)].append(one)
    found: dict[tuple[_Name, int], int | None] = {}
    for one in elections:
        if one.unclean:
            before = [
                state
                for state in led[_name(one)]
                if state.mode == one.mode
                if state.position <= one.position and state.leader_epoch < one.leader_epoch
            ]
            last = max(before, key=lambda state: (state.position, state.leader_epoch), default=None)
            found[_name(one), one.position] = None if last is None else last.leader
    return found


class _Extent(NamedTuple):
    extent: str
    why: str
    from_offset: int | None = None
    to_offset: int | None = None


def _losses(
    elections: Sequence[Any], last_leaders: Mapping[tuple[_Name, int], int | None], roles: _Roles
) -> Iterator[RecordLoss]:
    for one in elections:
        if not one.unclean:
            continue
        last = last_leaders[_name(one), one.position]
        extent = _extent_of(one, last, roles)
        yield RecordLoss(
            cluster=one.cluster,
            mode=one.mode,
            topic=one.topic,
            partition=one.partition,
            at_ms=one.at_ms,
            last_leader=last,
            leader=one.leader,
            leader_epoch=one.leader_epoch,
            how=one.how,
            extent=extent.extent,
            from_offset=extent.from_offset,
            to_offset=extent.to_offset,
            why=extent.why,
            position=one.position,
        )


def _extent_of(one: Any, last: int | None, roles: _Roles) -> _Extent:
    """Returns the extent of a loss. All acknowledged records are in the log of the last leader. Its records behind the
    start of the new leader are lost when that broker comes back and truncates them."""
    if last == one.leader:
        return _Extent("nothing", "the same broker led before, and its disk has what it acknowledged")
    if last is None:
        return _Extent("unknown", "who led before is not in the record")
    if one.offset is None:
        missing = f"where the records of broker {one.leader} begin at leader epoch {one.leader_epoch}"
        return _Extent("unknown", f"no line says {missing}: its state-change.log would")
    own = (role for role in roles.of(_name(one)) if role.broker == last and role.leader_epoch >= one.leader_epoch)
    back = next(own, None)
    if back is None or back.offset is None:
        why = f"no line says with how many records broker {last} came back: its state-change.log would"
        return _Extent("unbounded", why, one.offset)
    if back.role == "leader":
        return _Extent("nothing", f"broker {last} led again before it followed, with all that it had", one.offset)
    if back.offset <= one.offset:
        return _Extent("nothing", f"broker {last} came back with no more than broker {one.leader} had", one.offset)
    return _Extent("exact", f"broker {last} came back with these and threw them away", one.offset, back.offset)


def _fencings(lines: Sequence[Any], records: Tables) -> Iterator[RecordFencing]:
    """Each record of a fencing confirms one line."""
    lives: dict[int, list[Any]] = defaultdict(list)
    for one in records["record_broker_lives"]:
        if one.mode == "kraft":
            lives[one.broker].append(one)
    seats = sorted((one for one in records["record_tenures"] if one.mode == "kraft"), key=lambda one: one.from_ms)
    left = {broker: [one for one in of_one if one.ended == "fenced"] for broker, of_one in lives.items()}
    for line in sorted(lines, key=lambda one: (one.at_ms, one.controller, one.broker)):
        holder = next((one for one in reversed(seats) if one.from_ms <= line.at_ms), None)
        is_holder = holder is not None and holder.controller == line.controller
        own = left.get(line.broker, [])
        near = [one for one in own if is_holder and abs(one.to_ms - line.at_ms) <= _ONE_DECISION_MS]
        done = min(near, key=lambda one: abs(one.to_ms - line.at_ms), default=None)
        if done is not None:
            own.remove(done)
        was_serving = any(
            one.from_ms <= line.at_ms and (one.to_ms is None or line.at_ms < one.to_ms) for one in lives[line.broker]
        )
        yield RecordFencing(
            cluster=line.cluster,
            mode="kraft",
            at_ms=line.at_ms,
            controller=line.controller,
            broker=line.broker,
            broker_epoch=line.broker_epoch,
            outcome="done" if done is not None else "no change" if is_holder and not was_serving else "void",
            done_ms=None if done is None else done.to_ms,
            heard_ms=line.heard_ms,
            file_id=line.file_id,
            line_no=line.line_no,
        )


def _clocks(states: Sequence[Any], tenures: Sequence[Any], roles: _Roles) -> Iterator[RecordClock]:
    """Only a broker's first line of a record: after its restart it tells old ones again."""
    seats = {(one.cluster, one.mode, one.epoch): one.controller for one in tenures}
    found: dict[tuple[str, str, int, int], list[int]] = defaultdict(list)
    for state in states:
        controller = seats.get((state.cluster, state.mode, state.controller_epoch))
        if state.mode != "kraft" or state.leader is None or controller is None:
            continue
        own = roles.led(_name(state), state.leader, state.leader_epoch)
        line = next((role for role in own if role.partition_epoch == state.partition_epoch), None)
        if line is not None:
            found[state.cluster, state.mode, state.leader, controller].append(line.at_ms - state.from_ms)
    for (cluster, mode, broker, controller), gaps in sorted(found.items()):
        yield RecordClock(
            cluster=cluster,
            mode=mode,
            broker=broker,
            controller=controller,
            lines=len(gaps),
            least_ms=min(gaps),
            median_ms=round(median(gaps)),
            most_ms=max(gaps),
        )
