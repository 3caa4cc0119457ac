"""Rules about admin requests: elections, drains, reassignments, deletions. Of the whole run, as in `rules_tellings.py`.

Why a state was written, its line in the state-change log says; the rules here hold the two against each other.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from controller.core.events import ElectAsked
from tests.faults.checker.history import Call, History
from tests.faults.checker.replay import Key
from tests.faults.checker.replay_facts import Known, RunRule, Written
from tests.faults.checker.rules_client_calls import could_act_at
from tests.faults.checker.rules_zookeeper import NO_LEADER, is_unclean
from tests.faults.checker.writers import Wrong

_PREFERRED: Final = ("preferred_election", "leader_imbalance")
_UNCLEAN_ASKED: Final = "unclean_election"
#: a controller's reasons for reading, not a writer's for writing
_READ: Final = ("found", "state_written")
_DRAIN: Final = ("drain", "controlled_shutdown")


class Said(NamedTuple):
    """The reason of a write, from a state's own line."""

    cause: str
    is_unclean: bool


def _recorded(history: History, known: Known) -> Iterator[tuple[Written, Said]]:
    """Yield the states that a controller wrote, with the content of their lines. Versions begin anew when a tool erased
    the state: then the commit tells which of them a line is about."""
    written: defaultdict[Any, list[Written]] = defaultdict(list)
    for one in known.written:
        if one.by_controller:
            written[one.topic_id, one.key[1], one.state.version].append(one)
    for line in history.lines:
        place = (line.get("topic_id"), line.get("partition"), line.get("version"))
        found = written.get(place, []) if line["kind"] == "partition" else []
        exact = [one for one in found if one.zxid == line.get("zxid")]
        if exact or len(found) == 1:
            yield (exact or found)[0], Said(line.get("cause") or "", line.get("unclean") is True)


def s26_preferred_elections_name_the_first_replica(history: History, known: Known) -> Iterator[Wrong]:
    for one, said in _recorded(history, known):
        if said.cause not in _PREFERRED or one.before is None:
            continue
        leader = one.state.leader
        if leader == NO_LEADER or leader != one.replicas[0] or leader not in one.before.isr:
            yield one.key, f"{said.cause}: {leader} of {one.replicas} was named, with ISR {one.before.isr} before"


def s27_no_drain_takes_a_partition_offline(history: History, known: Known) -> Iterator[Wrong]:
    for one, said in _recorded(history, known):
        if said.cause in _DRAIN and one.state.leader == NO_LEADER:
            yield one.key, f"{said.cause}, and nobody leads it any more"


def s14_unclean_choices_were_allowed(history: History, known: Known) -> Iterator[Wrong]:
    """By configuration as of that commit (belief may be a moment behind), or because a client asked for it just then,
    and the line says so, if the deciding controller had the time to write one."""
    recorded = said_of(history, known)
    for one in _unclean(known):
        said = recorded.get((one.key, one.zxid))
        is_asked = any(_asks_uncleanly(call, one.key) and could_act_at(call, one.at_ms) for call in history.calls)
        if not one.unclean_allowed and not (is_asked and (said is None or said.cause == _UNCLEAN_ASKED)):
            yield one.key, f"leader {one.state.leader} was not in the ISR before; not allowed, nor asked for: {said}"


def s17_unclean_choices_are_logged_as_such(history: History, known: Known) -> Iterator[Wrong]:
    recorded = said_of(history, known)
    for one in _unclean(known):
        said = recorded.get((one.key, one.zxid))
        if said is not None and not said.is_unclean:
            yield one.key, f"the unclean choice of {one.state.leader} is recorded as any other, caused by {said.cause}"


def _unclean(known: Known) -> Iterator[Written]:
    """Elections of replicas that the ISR before did not have."""
    for one in known.written:
        before, after = one.before, one.state
        if before is None or not one.by_controller or after.leader_epoch == before.leader_epoch:
            continue
        if after.leader != NO_LEADER and is_unclean(before, after):
            yield one


def said_of(history: History, known: Known) -> dict[tuple[Key, int], Said]:
    """By partition and zxid; a state found by a successor tells no cause."""
    return {(one.key, one.zxid): said for one, said in _recorded(history, known) if said.cause not in _READ}


def _asks_uncleanly(call: Call, key: Key) -> bool:
    asked = call.detail
    if not isinstance(asked, ElectAsked) or not asked.is_unclean or key in call.refused:
        return False
    return asked.partitions is None or key in asked.partitions


RULES: Final[tuple[RunRule, ...]] = tuple(
    value for name, value in sorted(globals().items()) if re.match(r"s\d\d_", name)
)
