"""Rules about calls and their results: granted means done, refused means not done, and the last request stands in the
end. Of the whole run, as in `rules_tellings.py`; a call counts within its own window of time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from controller.core.events import (
    ConfigAsked,
    CreateTopicAsked,
    DeleteTopicAsked,
    DrainAsked,
    Event,
    GrowTopicAsked,
    ReassignAsked,
    UndrainAsked,
)
from controller.core.project.znodes import KLAMM
from tests.faults.checker.history import SLACK_MS, STOP, Call, History, config_of, object_of
from tests.faults.checker.replay import Key, target_of, topic_of
from tests.faults.checker.replay_facts import Known, RunRule
from tests.faults.checker.slow_faults import is_held
from tests.faults.checker.writers import REQUEST_NODES, Wrong
from tests.faults.hostile import REMOVE

#: so long after its caller was told nothing, a request may still be carried out
UNKNOWN_FOR_MS: Final = 15_000
FOREVER_MS: Final = 1 << 60

_REASSIGN: Final = REQUEST_NODES[0]


def could_act_at(call: Call, at_ms: int) -> bool:
    """Returns whether an event at that time can be the work of this call."""
    if call.outcome == "refused":
        return False
    return call.begun_ms - SLACK_MS <= at_ms <= _until_ms(call) + SLACK_MS


def _until_ms(call: Call) -> int:
    if call.ended_ms is None:
        return FOREVER_MS
    return call.ended_ms + (UNKNOWN_FOR_MS if call.outcome == "unknown" else 0)


def _expected_write(event: Event) -> tuple[str, Callable[[bytes | None], bool]] | None:
    """The node in which an operation shows, and whether its content is the requested one."""
    match event:
        case CreateTopicAsked(name=name):
            return f"/brokers/topics/{name}", lambda data: data is not None
        case GrowTopicAsked(name=name, count=count):
            return f"/brokers/topics/{name}", lambda data: _count_in(data) >= count
        case DeleteTopicAsked(name=name):
            return f"/admin/delete_topics/{name}", lambda data: data is not None
        case ConfigAsked(kind="topics", entity=name, values=values):
            return f"/config/topics/{name}", lambda data: _has_values(data, values)
        case DrainAsked(broker_id=broker_id, is_shutdown=False):
            return f"/klamm/draining/{broker_id}", lambda data: data is not None
        case UndrainAsked(broker_id=broker_id):
            return f"/klamm/draining/{broker_id}", lambda data: _drained_by(data) != "hand"
    return None


def _count_in(data: bytes | None) -> int:
    topic = None if data is None else topic_of(data, 0)
    return 0 if topic is None else len(topic.partitions)


def _has_values(data: bytes | None, values: Any) -> bool:
    said = config_of(data or b"")
    return all(said.get(name) == value for name, value in values.items())


def _drained_by(data: bytes | None) -> str | None:
    return None if data is None else object_of(data).get("by")


def s30_granted_requests_were_carried_out(history: History, known: Known) -> Iterator[Wrong]:
    """While it was asked for, or it stood already. A controller that is cut off from ZooKeeper cannot know that a tool
    wrote over it lately, for as long as its session lives; and a term does not hear of notes that a tool takes out of
    `/klamm`: it goes by its own writes there."""
    for call in history.calls:
        expected = _expected_write(call.detail)
        if call.outcome != "ok" or expected is None:
            continue
        path, is_done = expected
        since_ms = call.begun_ms - SLACK_MS
        holder = next((one for one in reversed(known.tenures) if one.at_ms <= call.begun_ms), None)
        if holder is not None and is_held(history, holder.broker_id, since_ms, call.begun_ms):
            since_ms -= history.session_timeout_ms
        if holder is not None and _is_taken_out(history, path, call.begun_ms):
            since_ms = min(since_ms, holder.at_ms)
        window = since_ms, (call.ended_ms or FOREVER_MS) + SLACK_MS
        if isinstance(call.detail, DeleteTopicAsked):  # that there is none was wanted
            topic = known.stood(f"/brokers/topics/{call.detail.name}", *window)
            if any(one.data is None for one in topic):
                continue
        if not any(is_done(one.data) for one in known.stood(path, *window)):
            yield None, f"{call.what} {call.subject} was answered with ok, and {path} never said so meanwhile"


def _is_taken_out(history: History, path: str, by_ms: int) -> bool:
    """Returns whether a tool removed a parent of this note."""
    removals = (one for one in history.faults if one.kind == REMOVE and one.at_ms <= by_ms)
    return path.startswith(KLAMM) and any(path.startswith(f"{one.target}/") for one in removals)


def s30_refused_requests_were_not_carried_out(history: History, known: Known) -> Iterator[Wrong]:
    """Another call has to explain a controller's decision in between. A caller whose answer was lost, and whose write
    another one replaced, cannot know that it was carried out."""
    for call in history.calls:
        expected = _expected_write(call.detail)
        if call.outcome != "refused" or expected is None or isinstance(call.detail, UndrainAsked):
            continue
        path, is_done = expected
        meanwhile = [one for one in known.changes(path) if call.begun_ms <= one[1].at_ms <= (call.ended_ms or 0)]
        for before, after in meanwhile if all(one.by_controller for _, one in meanwhile) else ():
            others = (one for one in history.calls if could_act_at(one, after.at_ms))
            is_new = is_done(after.data) and not is_done(before.data)
            if isinstance(call.detail, DrainAsked) and _asked_to_stop(history, call.detail.broker_id, after.at_ms):
                continue  # a broker that stops asks for its own drain
            if isinstance(call.detail, CreateTopicAsked | GrowTopicAsked) and _is_going(known, call.detail.name, call):
                continue  # it was made or grew, and before that was led it was to be deleted
            if isinstance(call.detail, DrainAsked) and meanwhile[-1][1].data is None:
                continue  # granted, and over when the broker went, before the answer
            if isinstance(call.detail, ConfigAsked) and after.data is None:
                continue  # it went with its topic
            if is_new and not any((_expected_write(one.detail) or ("",))[0] == path for one in others):
                yield None, f"{call.what} {call.subject} was refused, and {path} says that it was done"


def _is_going(known: Known, topic: str, call: Call) -> bool:
    markers = known.stood(f"/admin/delete_topics/{topic}", call.begun_ms, call.ended_ms or 0)
    return any(one.data is not None for one in markers)


def _asked_to_stop(history: History, broker_id: int, by_ms: int) -> bool:
    return any(fault.broker_id == broker_id and fault.kind == STOP and fault.at_ms <= by_ms for fault in history.faults)


def s21_the_last_requested_assignment_stands(history: History, known: Known) -> Iterator[Wrong]:
    """A granted reassignment that was not taken back has happened when all has come to rest."""
    if history.end is None or history.end.converged_after_ms is None:
        return
    for call in history.calls:
        if not isinstance(call.detail, ReassignAsked) or call.outcome != "ok":
            continue
        for key, target in call.detail.targets.items():
            if target is None or key in call.refused or any(_overriding(history, known, key, call)):
                continue
            topic = known.world.topics.get(key[0])
            place = None if topic is None else topic.partitions.get(key[1])
            if place is None or place.replicas != tuple(target):
                yield key, f"replicas {target} were granted and never taken back, and in the end they are {place}"


def s21_the_target_is_the_last_requested_assignment(history: History, known: Known) -> Iterator[Wrong]:
    """From the answer on, over failovers, until another request may have been made."""
    for call in history.calls:
        if not isinstance(call.detail, ReassignAsked) or call.outcome != "ok" or call.ended_ms is None:
            continue
        for key, target in call.detail.targets.items():
            if target is None or key in call.refused:
                continue
            until_ms = min(_overriding(history, known, key, call), default=FOREVER_MS) - SLACK_MS
            for one in known.stood(f"/brokers/topics/{key[0]}", call.ended_ms + SLACK_MS, until_ms):
                topic = topic_of(one.data or b"", 0)
                place = None if topic is None else topic.partitions.get(key[1])
                if place is not None and target_of(place) != tuple(target) and call.ended_ms < until_ms:
                    yield key, f"replicas {target} were granted at {call.ended_ms}, and {place} stood after {one.at_ms}"


def _overriding(history: History, known: Known, key: Key, call: Call) -> Iterator[int]:
    """When another request may have begun, at the same time or later: by a call, a tool, a deletion."""
    for other in history.calls:
        if other is not call and other.outcome != "refused" and _until_ms(other) >= call.begun_ms - SLACK_MS:
            match other.detail:
                case ReassignAsked(targets=targets) if key in targets and key not in other.refused:
                    yield other.begun_ms
                case CreateTopicAsked(name=name) | DeleteTopicAsked(name=name) if name == key[0]:
                    yield other.begun_ms
    since_ms = call.begun_ms - SLACK_MS
    for path in (_REASSIGN, f"/admin/delete_topics/{key[0]}"):
        yield from (one.at_ms for one in known.stood(path, since_ms, FOREVER_MS) if one.data is not None)
    written = known.values.get(f"/brokers/topics/{key[0]}", ())
    yield from (one.at_ms for one in written if not one.by_controller and one.at_ms >= since_ms)


RULES: Final[tuple[RunRule, ...]] = tuple(
    value for name, value in sorted(globals().items()) if re.match(r"s\d\d_", name)
)
