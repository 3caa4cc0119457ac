"""Rules about isolation: when a tool harms one topic, broker or node, all others go on being led.

A death is the occasion on which it shows: the dead broker's partitions have to be led by others soon, unless a fault
fell on that topic itself, on its possible leaders, or on the controller and its way to ZooKeeper.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tests.faults.checker.history import History
from tests.faults.checker.replay import Key, Registration
from tests.faults.checker.replay_facts import Known, RunRule, Written
from tests.faults.checker.slow_faults import is_held
from tests.faults.checker.writers import Wrong
from tests.faults.hostile import HOSTILE

TOPIC: Final = "/brokers/topics/"
#: the longest of back-offs that other subjects' troubles have begun meanwhile, and a session time-out
LED_WITHIN_MS: Final = 10_000


def s33_a_dead_brokers_partitions_are_led_by_others(history: History, known: Known) -> Iterator[Wrong]:
    """By a controller that had loaded, was there all the time and held up by nothing, where a member of the ISR was.
    Judged beside hostile tools, in virtual time: on a busy machine ten seconds prove nothing."""
    if history.end is None or history.sees != "all" or not any(one.kind in HOSTILE for one in history.faults):
        return
    end_ms = max(history.commits[-1].at_ms, history.end.at_ms)
    loaded_ms = {
        line["controller_epoch"]: line["at_ms"]
        for line in history.lines
        if (line["kind"], line.get("target")) == ("controller", "loaded")
    }
    for gone in known.registrations:
        for tenure in known.tenures if gone.until_ms is not None else ():
            since_ms = max(gone.until_ms or 0, loaded_ms.get(tenure.epoch, end_ms))
            due_ms = since_ms + LED_WITHIN_MS
            if due_ms > min(end_ms, end_ms if tenure.until_ms is None else tenure.until_ms):
                continue
            if not _is_back(known, gone, due_ms) and not is_held(history, tenure.broker_id, since_ms, due_ms):
                for one in _left(history, known, gone, since_ms, due_ms):
                    text = f"broker {gone.broker_id} went at {gone.until_ms} and led on in epoch {tenure.epoch}"
                    yield one.key, f"{text} until {due_ms}, though {one.state.isr} were in sync"


def _left(history: History, known: Known, gone: Registration, since_ms: int, due_ms: int) -> Iterator[Written]:
    """Returns the partitions that it led then, leads still, and that another could lead."""
    now: dict[Key, Written] = {}
    for one in known.written:
        if one.at_ms <= due_ms:
            now[one.key] = one
    for key, one in now.items():
        if one.state.leader != gone.broker_id or known.is_gone_since(one):
            continue
        others = [
            each
            for each in one.state.isr
            if each != gone.broker_id and _is_there(history, known, each, since_ms, due_ms)
        ]
        if others and not _is_harmed(history, key) and not _is_going(known, key[0], due_ms):
            yield one


def _is_back(known: Known, gone: Registration, due_ms: int) -> bool:
    lives = (one for one in known.registrations if one.broker_id == gone.broker_id and one.epoch > gone.epoch)
    return any(one.from_ms <= due_ms for one in lives)


def _is_there(history: History, known: Known, broker_id: int, since_ms: int, until_ms: int) -> bool:
    """Registered all the time, where everybody can read it."""
    is_hidden = any(one.target.partition(" ")[0] == f"/brokers/ids/{broker_id}" for one in history.faults)
    return not is_hidden and any(
        one.broker_id == broker_id and one.from_ms <= since_ms and (one.until_ms is None or one.until_ms > until_ms)
        for one in known.registrations
    )


def _is_harmed(history: History, key: Key) -> bool:
    """Whether a fault has fallen on that topic, whenever."""
    targets = (one.target.partition(" ")[0] for one in history.faults)
    return key[0] in history.hidden_topics or any(
        f"{one}/".startswith(f"{TOPIC}{key[0]}/") or one == f"/config/topics/{key[0]}" for one in targets
    )


def _is_going(known: Known, topic: str, until_ms: int) -> bool:
    """Whether it is to be deleted, or is not there any more."""
    markers = known.stood(f"/admin/delete_topics/{topic}", 0, until_ms)
    return any(one.data is not None for one in markers) or topic not in known.world.topics


RULES: Final[tuple[RunRule, ...]] = tuple(
    value for name, value in sorted(globals().items()) if re.match(r"s\d\d_", name)
)
