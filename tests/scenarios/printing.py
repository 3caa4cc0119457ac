"""The printing of a story: writes, requests to brokers, log lines. For people: compact, in fixed order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from controller.core.belief.kept_states import Move
from controller.core.model import Leadership, Partition
from controller.core.operations import Create, Delete, Set
from controller.core.project.lines import Line, ranges_of
from controller.core.project.requests import Rows, Telling
from controller.core.project.znodes import (
    Ensure,
    Put,
    Remove,
    RemoveBelow,
    Write,
)


def listed(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids)) or "nobody"


def printed_write(write: Write) -> str:
    match write:
        case Create(path=path, data=data):
            return f"create {path} {data.decode()}"
        case Put(path=path, data=data):
            return f"put {path} {data.decode()}"
        case Set(path=path, data=data, version=version):
            return f"set {path} at version {version} {data.decode()}"
        case Delete(path=path, version=version):
            return f"delete {path} at version {version}"
        case Remove(path=path) | RemoveBelow(path=path):
            return f"delete {path}"
        case Ensure(path=path):
            return f"create {path}"


def printed_state(state: Leadership, version: int) -> str:
    return f"leader {state.leader}, epoch {state.leader_epoch}, isr {listed(state.isr)}, version {version}"


def named(rows: Rows) -> Iterator[tuple[str, str, int, Partition]]:
    for (topic, topic_id), partitions in sorted(rows.items()):
        for number, one in sorted(partitions.items()):
            yield f"{topic}-{number}", topic_id, number, one


def printed_telling(telling: Telling) -> Iterator[str]:
    joined = [broker.broker_id for broker in telling.joined]
    others = sorted(telling.live_ids - set(joined))
    for broker_id, names in sorted(telling.questions.items()):
        yield f"{broker_id}: say what you know of {' '.join(sorted(names))}"
    if telling.brokers_changed:
        states = ", ".join(f"{one.broker.broker_id} {one.state}" for one in telling.brokers)
        yield f"{listed(sorted(telling.live_ids))}: brokers {states}"
    if joined:
        new_ids = {(topic_id, number) for topic_id, number, broker_id in telling.new_replicas if broker_id in joined}
        shown = [(name, (topic_id, number) in new_ids) for name, topic_id, number, _ in named(telling.everything or {})]
        everything = " ".join(f"{name} (new)" if is_new else name for name, is_new in shown)
        yield f"{listed(joined)}: everything: {everything or 'no partition'}"
    for broker_id, rows in sorted(telling.leaderships.items()):
        for name, topic_id, number, one in named(rows):
            assert one.state is not None
            new = ", new" if (topic_id, number, broker_id) in telling.new_replicas else ""
            yield f"{broker_id}: leader-and-isr {name}: {printed_state(one.state, one.version)}{new}"
    if telling.metadata:
        yield f"{listed(others)}: metadata {' '.join(name for name, *_ in named(telling.metadata))}"
    for (topic, _), partitions in telling.removed.items():
        yield f"{listed(sorted(telling.live_ids))}: forget {' '.join(f'{topic}-{number}' for number in partitions)}"
    for broker_id, stops in sorted(telling.stops.items()):
        for (topic, _), wanted in sorted(stops.items()):
            for number, stop in sorted(wanted.items()):
                yield f"{broker_id}: stop {topic}-{number}{', delete it' if stop.delete else ''}"


def printed_move(move: Move) -> str:
    where = "" if move.broker_id is None else f" on {move.broker_id}"
    named = [f"{topic}-{ranges_of(bits)}" for topic, bits in sorted(move.topics.items())]
    return f"{' '.join(named)}{where}: {move.source.value} -> {move.target.value} ({move.cause.value})"


def printed_line(line: Line) -> str:
    subject = f"broker {line.broker_id}" if line.kind == "broker" else line.kind
    if line.kind == "found":
        listed_ = " ".join(f"{topic}-{said}" for topic, said in (line.partitions or {}).items())
        where = "" if line.broker_id is None else f" on {line.broker_id}"
        return f"found {line.count} {line.target}{where}{': ' if listed_ else ''}{listed_}"
    if line.kind == "election":
        subject = f"election of {' '.join(f'{topic}-{said}' for topic, said in (line.partitions or {}).items())}"
    if line.topic is not None:
        subject = f"topic {line.topic}" if line.partition is None else f"{line.topic}-{line.partition}"
        if line.kind == "replica":
            subject = f"{subject} on {line.broker_id}"
    move = f"{line.source} -> {line.target}" if line.source else f"-> {line.target}"
    reason = f": {line.reason}" if line.reason else ""
    state = ""
    if line.leader is not None and line.leader_epoch is not None and line.isr is not None:
        state = f" (leader {line.leader}, epoch {line.leader_epoch}, isr {listed(line.isr)}, version {line.version})"
    return f"{subject} {move}{reason}{state}"
