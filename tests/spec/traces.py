"""Histories as TLA+: the steps of one run on the seat, and on each partition, in the order of zxids.

It names the action of each commit, request and answer. TLC decides whether that action was allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from controller.core.formats import decode_marker
from controller.core.project.znodes import KLAMM, TERMS
from tests.faults.checker.history import ANY_VERSION, Commit, History, Rpc, Write, object_of
from tests.faults.checker.replay import Key, State, StateChange, Step, World, replay, target_of
from tests.faults.checker.slow_faults import is_forbidden
from tests.faults.checker.writers import EPOCH, SEAT, controller_writes, is_by_controller, is_by_process, is_noted

NO_LEADER: Final = -1
TLA_NOBODY: Final = 0
LISR: Final = "leader-and-isr"
STOPS: Final = "stop-replica"
#: within one moment: commits of ZooKeeper come first, then sent requests, then received ones
_COMMITTED, _SENT, _HEARD = 0, 1, 2
_MARKERS: Final = "/admin/delete_topics/"

#: a moment in milliseconds, then the order within that moment, then a number
At = tuple[float, int, int]
Value = int | str | bool | tuple["Value", ...] | frozenset["Value"] | dict[int, "Value"]


class Trace(NamedTuple):
    """A run, or the part of it about one partition: steps as TLA+ writes them. `where` describes each step for a
    reader."""

    name: str
    steps: list[str]
    where: list[str]


def tla(value: Any) -> str:
    """A value as TLA+ writes it."""
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case str():
            return f'"{value}"'
        case tuple() | list():
            return f"<<{','.join(map(tla, value))}>>"
        case frozenset():
            return f"{{{','.join(sorted(map(tla, value)))}}}"
        case dict():
            return (
                "(" + (" @@ ".join(f"{tla(key)} :> {tla(one)}" for key, one in sorted(value.items())) or "<<>>") + ")"
            )
    raise TypeError(f"no TLA+ for {value!r}")


def module_of(traces: Sequence[Trace]) -> str:
    """The module Recorded. A definition for each trace: one of all of them overruns the parser's stack."""
    lines = ["---- MODULE Recorded ----", "EXTENDS Integers, TLC"]
    lines += [f"Run{number} == <<{', '.join(one.steps)}>>" for number, one in enumerate(traces, start=1)]
    lines.append(f"Traces == <<{', '.join(f'Run{number}' for number in range(1, len(traces) + 1))}>>")
    return "\n".join([*lines, "====", ""])


# --- the seat


def of_seat(name: str, history: History) -> Trace:
    """Sessions are numbered by process. A session of any other client counts as an operator's."""
    timed: list[tuple[At, tuple[Value, ...], str]] = []
    owners = _Owners()
    is_ours = bool(history.rpcs)
    for number, (step, world) in enumerate(replay(history)):
        if not is_ours and not _is_fenced_by_kafka(step):
            continue
        for one in _seat_steps(history, step, world, owners):
            timed.append(((step.commit.at_ms, _COMMITTED, number), one, f"zxid {step.commit.zxid:#x}"))
    lives: dict[int, int] = {}
    for at, rpc in _obeyed(history):
        life = lives.setdefault(rpc.broker_epoch, len(lives) + 1)
        said = ("Tell", rpc.controller_id, rpc.controller_epoch, rpc.broker_id, life)
        timed.append((at, said, f"{rpc.kind} to broker {rpc.broker_id}"))
    return _in_order(name, timed)


def _obeyed(history: History) -> Iterator[tuple[At, Rpc]]:
    """The requests that brokers obeyed, each with a moment between its sending and its answer.

    A broker's own lines give the order. Its clock may be wrong and an answer may be slow on its way, so where requests
    were seen on their way, the moment is that of the latest request that had come by then.
    """
    latest: dict[int, float] = {}
    for number, rpc in enumerate(history.rpcs):
        if rpc.error_code != 0:
            continue
        moment: float = rpc.at_ms
        if history.sees == "ways":
            if rpc.sent_ms is None:
                continue  # a controller's request to its own broker: only that process knows its moment
            moment = latest[rpc.broker_id] = max(latest.get(rpc.broker_id, 0), rpc.sent_ms)
        yield (moment, _HEARD, number), rpc


class _Owners:
    """Sessions as pairs: whose, and which of its sessions."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[int, int]] = {}
        self._count: dict[int, int] = {}

    def pair(self, session: int, world: World) -> tuple[int, int]:
        if session not in self._of:
            process = world.sessions[session]
            self._count[process] = self._count.get(process, 0) + 1
            self._of[session] = process, self._count[process]
        return self._of[session]


def _is_fenced_by_kafka(step: Step) -> bool:
    """Whether the step is fenced, as those of Kafka's controller are. Kafka's brokers also write configurations, new
    topics and markers themselves, without a fence."""
    is_about_seat = any(one.path in (SEAT, EPOCH) for one in step.commit.writes)
    return is_about_seat or bool(step.states) or bool(_checked(step.commit))


def _seat_steps(history: History, step: Step, world: World, owners: _Owners) -> Iterator[tuple[Value, ...]]:
    commit = step.commit
    at = _version_of(world)
    if step.is_claim and commit.session in world.sessions:
        epoch = step.epoch_after or 0
        # where a tool forbids the note the rule S1 asks for none, and neither does the specification
        notes = is_noted(commit, epoch) or is_forbidden(history, (KLAMM, TERMS), commit.at_ms)
        yield ("Claim", *owners.pair(commit.session, world), epoch, at, notes)
        return
    vacates = any((one.kind, one.path) == ("delete", SEAT) for one in commit.writes)
    touches = any(one.kind != "check" and one.path == EPOCH for one in commit.writes)
    if is_by_process(step, world):
        who = owners.pair(commit.session, world)
        if vacates and (touches or EPOCH in _checked(commit)):
            yield ("Release", *who, at)
            return
        if vacates:
            yield ("End", *who)
        elif touches:
            yield ("Epoch", step.epoch_after or 0, at)
        if controller_writes(commit):
            stamps = {one.after.controller_epoch for one in step.states if one.after is not None}
            for stamp in sorted(stamps) or [0]:
                yield ("Write", *who, stamp, _checked_names(commit))
        return
    if vacates:
        yield ("DeleteSeat",)
    if touches:
        yield ("Epoch", step.epoch_after or 0, at)


def _version_of(world: World) -> int:
    node = world.nodes.get(EPOCH)
    return -1 if node is None else node.version


def _checked(commit: Commit) -> set[str]:
    return {one.path for one in commit.writes if one.kind == "check"}


def _checked_names(commit: Commit) -> frozenset[Value]:
    names = {SEAT: "seat", EPOCH: "epoch"}
    return frozenset(names[path] for path in _checked(commit) if path in names)


# --- a partition


class _Lives:
    """Broker epochs as small numbers, per broker; 1 stands for a time before the run."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, int], int] = {}
        self._count: dict[int, int] = {}

    def number(self, broker_id: int, epoch: int) -> int:
        """0: no such life is known."""
        return self._of.get((broker_id, epoch), 0)

    def note(self, broker_id: int, epoch: int) -> int:
        if (broker_id, epoch) not in self._of:
            self._count[broker_id] = self._count.get(broker_id, 1) + 1
            self._of[broker_id, epoch] = self._count[broker_id]
        return self._of[broker_id, epoch]


class _Partition:
    """One partition's steps, until a writer that is no controller overwrote its state: the rules do not apply after
    that."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.timed: list[tuple[At, tuple[Value, ...], str]] = []
        self.is_over = False
        self.topic_id: str | None = None
        self.over_at: At | None = None


def of_partitions(name: str, history: History) -> list[Trace]:
    """A trace for each partition of each topic, the deleted too; of those that are the same, one."""
    collected = _Collector(history)
    found: dict[tuple[str, ...], Trace] = {}
    for one in collected.partitions:
        if any(step[1][0] == "State" for step in one.timed):
            trace = _in_order(f"{name} {one.key[0]}-{one.key[1]}", one.timed, one.over_at)
            found.setdefault(tuple(trace.steps), trace)
    return list(found.values())


class _Collector:
    """Walks a history once. Everything about brokers and terms goes to every partition."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._lives = _Lives()
        self._shared: list[tuple[At, tuple[Value, ...], str]] = []
        self._now: dict[Key, _Partition] = {}
        self.partitions: list[_Partition] = []
        self._leaving: tuple[frozenset[Value], frozenset[Value]] = frozenset(), frozenset()
        self._unserved: set[int] = set()
        self._registered: dict[int, int] = {}
        self._abandoned: set[str] = set()
        self._rpcs = history.heard or history.rpcs
        self._zxids: list[tuple[int, At]] = []
        self.brokers = {one.broker_id for one in self._rpcs}
        moment_ms = 0
        for step_number, (step, world) in enumerate(replay(history)):
            self.brokers |= set(world.registered)
            moment_ms = max(moment_ms, step.commit.at_ms)  # the order is that of zxids, not that of a server's clock
            self._take((moment_ms, _COMMITTED, step_number), step, world)
        self._tell()
        self._ask()
        self._rest()
        for one in self.partitions:
            one.timed = [*self._shared, *one.timed]

    def _take(self, at: At, step: Step, world: World) -> None:
        where = f"zxid {step.commit.zxid:#x}"
        self._zxids.append((step.commit.zxid, at))
        if step.is_claim and step.epoch_after is not None:
            self._shared.append((at, ("Term", step.epoch_after), where))
        registered = {number: one.epoch for number, one in world.registered.items()}
        anew = set()
        for broker in sorted(registered.keys() | self._registered.keys()):
            if (epoch := registered.get(broker)) != self._registered.get(broker):
                anew.add(broker)
                life = 0 if epoch is None else self._lives.note(broker, epoch)
                self._shared.append((at, ("Register", broker_number(broker), life), where))
                if life and self._history.sees != "ways":
                    self._shared.append((at, ("Life", broker_number(broker), life), where))
        self._registered = registered
        draining = frozenset(broker_number(broker) for broker in world.draining if world.is_draining(broker))
        stopping = frozenset(
            broker_number(broker) for broker in world.draining if world.is_draining(broker, for_good=True)
        )
        if (draining, stopping) != self._leaving:
            self._shared.append((at, ("Leaving", draining, stopping), where))
            self._leaving = draining, stopping
        announced = {object_of(write.data).get("broker") for write in step.commit.writes if _announces_disk(write)}
        unserved = {broker for broker in self._unserved | announced if broker in registered and broker not in anew}
        if unserved != self._unserved:
            self._shared.append((at, ("Unserved", broker_numbers(sorted(unserved))), where))
            self._unserved = unserved
        for write in step.commit.writes:
            if write.path.startswith(_MARKERS) and write.kind != "check" and decode_marker(write.data):
                self._abandoned.add(write.path.removeprefix(_MARKERS))
        for topic in step.topics:  # a transaction lands whole: its states are decided for the assignment beside them
            self._place(at, step, topic, where, world)
        self._states(at, step, world, where)

    def _place(self, at: At, step: Step, topic: Any, where: str, world: World) -> None:
        is_ours = is_by_controller(step)
        if topic.after is None:
            controller = world.sessions.get(step.commit.session, NO_LEADER)
            for key in [key for key in self._now if key[0] == topic.name]:
                one = self._now.pop(key)
                if is_ours:
                    replicas = topic.before.partitions[key[1]].replicas
                    one.timed.append((at, ("Erase", self._awaited(topic.name, replicas, controller)), where))
                else:
                    one.over_at = min(one.over_at or at, at)
            return
        for number, assigned in topic.after.partitions.items():
            key = topic.name, number
            before = None if topic.before is None else topic.before.partitions.get(number)
            one = self._now.get(key)
            if one is None:
                one = self._now[key] = _Partition(key)
                self.partitions.append(one)
            one.topic_id = topic.after.topic_id or one.topic_id
            if before != assigned:
                if before is not None and not is_ours:
                    one.over_at = min(one.over_at or at, at)
                origin = [broker for broker in assigned.replicas if broker not in assigned.adding]
                places = broker_numbers(assigned.replicas), broker_numbers(target_of(assigned)), broker_numbers(origin)
                one.timed.append((at, ("Place", *places), where))
        gone = [key for key in self._now if key[0] == topic.name and key[1] not in topic.after.partitions]
        for key in gone:
            one = self._now.pop(key)
            one.over_at = min(one.over_at or at, at)

    def _awaited(self, topic: str, replicas: Sequence[int], controller: int) -> frozenset[Value]:
        """The brokers whose confirmation of a deletion would be known."""
        if topic in self._abandoned:
            return frozenset()
        return broker_numbers([one for one in replicas if self._history.has_seen(controller, one)])

    def _states(self, at: At, step: Step, world: World, where: str) -> None:
        for change in step.states:
            one = self._now.get(change.key)
            if one is None:
                continue
            if not is_by_controller(step) or (change.before is None and change.last is not None):
                if change.after is not None or not is_by_controller(step):
                    one.over_at = min(one.over_at or at, at)
                continue
            if change.after is None:
                continue  # a deletion: the place goes at its end
            path = f"/brokers/topics/{change.key[0]}/partitions/{change.key[1]}/state"
            named = _is_named(path, step.commit.writes)
            controller = world.sessions.get(step.commit.session, NO_LEADER)
            if change.before is not None and not self._history.has_seen(change.before.leader, controller):
                one.timed += _unheard_proposal(at, change.before, change.after, where)
            one.timed.append((at, _state_step(change, named), where))

    def _tell(self) -> None:
        by_topic = {(one.topic_id, one.key[1]): one for one in self.partitions if one.topic_id is not None}
        for number, rpc in enumerate(self._rpcs):
            heard_at = (rpc.at_ms, _HEARD, number)
            where = f"{rpc.kind} to broker {rpc.broker_id} in epoch {rpc.controller_epoch}"
            if rpc.error_code != 0 or rpc.kind not in (LISR, STOPS):
                continue
            for row in rpc.rows or ():
                one = by_topic.get((row.topic_id, row.partition))
                if one is None or row.leader < NO_LEADER or (row.topic_id, row.partition) in rpc.refused:
                    continue
                sent = ("Send", leader_number(row.leader), row.leader_epoch, broker_numbers(row.isr), row.version)
                one.timed.append((self._sent_at(rpc, number), (*sent, row.controller_epoch), where))
            for stop in rpc.stops:
                one = by_topic.get((stop.topic_id, stop.partition))
                if one is not None and stop.is_delete and (stop.topic_id, stop.partition) not in rpc.refused:
                    one.timed.append((heard_at, ("Delete", broker_number(rpc.broker_id), True), where))
        begun: dict[int, int] = {}
        for at, rpc in _obeyed(self._history):
            life = self._lives.number(rpc.broker_id, rpc.broker_epoch)
            if self._history.sees == "ways" and life > begun.get(rpc.broker_id, 0):
                # ZooKeeper has a registration before its broker knows of it; the first request that the broker obeys
                # shows its life
                begun[rpc.broker_id] = life
                self._shared.append(
                    (at, ("Life", broker_number(rpc.broker_id), life), f"broker {rpc.broker_id} begins anew")
                )
            if rpc.kind not in (LISR, STOPS):
                continue
            obeyed = ("Obey", broker_number(rpc.broker_id), life, rpc.controller_epoch)
            where = f"{rpc.kind} to broker {rpc.broker_id} in epoch {rpc.controller_epoch}"
            subjects = {(row.topic_id, row.partition) for row in rpc.rows or () if row.leader >= NO_LEADER}
            subjects |= {(stop.topic_id, stop.partition) for stop in rpc.stops}
            for subject in subjects - rpc.refused:
                if (one := by_topic.get(subject)) is not None:
                    one.timed.append((at, obeyed, where))

    def _sent_at(self, rpc: Rpc, number: int) -> At:
        """Just after the last commit that its sender can have known of."""
        last = (0.0, _SENT, number)
        if rpc.sent_zxid is None:
            return (rpc.at_ms, _SENT, number)
        for zxid, at in self._zxids:
            if zxid > rpc.sent_zxid:
                break
            last = (at[0], at[1], at[2])
        return (last[0], last[1], last[2])

    def _ask(self) -> None:
        by_topic = {(one.topic_id, one.key[1]): one for one in self.partitions if one.topic_id is not None}
        for number, asking in enumerate(self._history.broker_requests):
            for proposal in asking.proposals if asking.error_code is None else ():
                one = by_topic.get((proposal.topic_id, proposal.partition))
                if one is None:
                    continue
                lives: dict[int, Value] = {broker_number(b): self._lives.number(b, epoch) for b, epoch in proposal.isr}
                members = frozenset(lives)
                said = (
                    "Wish",
                    broker_number(asking.sender_id),
                    proposal.leader_epoch,
                    proposal.known_version,
                    members,
                    lives,
                )
                one.timed.append(((asking.at_ms - 0.5, _HEARD, number), said, f"broker {asking.sender_id} asks"))

    def _rest(self) -> None:
        end = self._history.end
        if end is None or end.converged_after_ms is None:
            return
        at = (float("inf"), _HEARD, 0)
        for one in self._now.values():
            rows = {view[one.key] for view in end.views.values() if one.key in view}
            known = frozenset(
                (leader_number(leader), epoch, broker_numbers(isr), version) for leader, epoch, isr, version in rows
            )
            missing = (
                frozenset({(-9, -9, frozenset(), -9)})
                if any(one.key not in v for v in end.views.values())
                else frozenset()
            )
            one.timed.append((at, ("Rest", known | missing), "the end, all at rest"))


def _unheard_proposal(at: At, before: State, after: State, where: str) -> list[Any]:
    """Return the request that a grant implies, where the requests of brokers were not recorded."""
    if _kind(before, after) != "Grant":
        return []
    members = broker_numbers(after.isr)
    said = (
        "Wish",
        leader_number(before.leader),
        before.leader_epoch,
        before.version,
        members,
        dict.fromkeys(members, 0),
    )
    return [(at, said, where)]


def _state_step(change: StateChange, named: bool) -> tuple[Value, ...]:
    before, after = change.before, change.after
    assert after is not None
    return (
        "State",
        _kind(before, after),
        leader_number(after.leader),
        after.leader_epoch,
        broker_numbers(after.isr),
        after.version,
        bool(after.recovery),
        after.controller_epoch,
        named,
    )


def _kind(before: State | None, after: State) -> str:
    """Which action it would be. A name decides nothing: the action's own rule does."""
    if before is None:
        return "Begin"
    if after.leader == NO_LEADER:
        return "Stay" if before.leader == NO_LEADER else "Lose"
    if after.leader_epoch == before.leader_epoch and after.leader == before.leader:
        return "Grant"
    if after.recovery and after.leader not in before.isr:
        return "Unclean"
    return "Elect"


def _announces_disk(write: Write) -> bool:
    return write.kind == "create" and write.path.startswith("/log_dir_event_notification/")


def _is_named(path: str, writes: Sequence[Write]) -> bool:
    return not any(one.path == path and one.kind == "set" and one.expected == ANY_VERSION for one in writes)


def leader_number(broker: int) -> int:
    return TLA_NOBODY if broker == NO_LEADER else broker_number(broker)


def broker_number(broker: int) -> int:
    """Return the broker's number in TLA+. 0 stands for no broker."""
    return broker + 1


def broker_numbers(brokers: Sequence[int]) -> frozenset[Value]:
    return frozenset(map(broker_number, brokers))


def _in_order(name: str, timed: list[Any], over_at: Any = None) -> Trace:
    ordered = [one for one in sorted(timed, key=itemgetter(0)) if over_at is None or one[0] < over_at]
    return Trace(name, [tla(step) for _, step, _ in ordered], [where for _, _, where in ordered])
