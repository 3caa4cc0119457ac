"""Rules about writes to ZooKeeper, one function each, named after the hazard's number.

Each looks at one commit and the world as of after it, and yields violations as `(partition or None, text)`. None of
them keeps anything from one commit to the next; the replayed world has all that a rule has to remember.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from controller.core.project.znodes import DELETE_TOPICS
from tests.faults.checker.history import ANY_VERSION, History
from tests.faults.checker.replay import Assigned, Key, State, StateChange, Step, World
from tests.faults.checker.writers import Rule, Wrong, controller_writes, is_by_controller, is_by_process

NO_LEADER: Final = -1


def s02_s09_states_carry_their_writers_epoch(history: History, step: Step, world: World) -> Iterator[Wrong]:
    for one in step.states:
        if one.after is None:
            continue
        if one.last is not None and one.after.controller_epoch < one.last.controller_epoch:
            yield one.key, f"controller_epoch went from {one.last.controller_epoch} to {one.after.controller_epoch}"
        if is_by_controller(step) and one.after.controller_epoch != step.epoch_before:
            yield one.key, f"written in epoch {step.epoch_before}, and says {one.after.controller_epoch}"


def s08_leader_epochs_rise_by_one_decision(history: History, step: Step, world: World) -> Iterator[Wrong]:
    for one in step.states:
        before, after = one.last, one.after
        if before is None or after is None or not is_by_controller(step):
            continue
        if after.leader_epoch < before.leader_epoch:
            yield one.key, f"the leader epoch fell from {before.leader_epoch} to {after.leader_epoch}"
        elif after.leader_epoch == before.leader_epoch and after.leader != before.leader:
            yield one.key, f"leader {after.leader} after {before.leader} with the same leader epoch"
        elif after.leader_epoch > before.leader_epoch + 1:
            yield one.key, f"the leader epoch went from {before.leader_epoch} to {after.leader_epoch}"
        elif after[:3] == before[:3] and after.recovery == before.recovery and one.before is not None:
            yield one.key, "written again without any change"


def s10_writes_name_the_version_they_expect(history: History, step: Step, world: World) -> Iterator[Wrong]:
    if is_by_process(step, world):
        for one in controller_writes(step.commit):
            if one.kind in ("set", "delete") and one.expected == ANY_VERSION:
                yield None, f"{one.path} was written whatever its version"


def s11_the_leader_is_in_the_isr(history: History, step: Step, world: World) -> Iterator[Wrong]:
    for one in step.states:
        if one.after is not None and one.after.leader not in (NO_LEADER, *one.after.isr):
            yield one.key, f"leader {one.after.leader} is not in ISR {one.after.isr}"


def s12_the_isr_is_never_empty(history: History, step: Step, world: World) -> Iterator[Wrong]:
    for one in step.states:
        if one.after is not None and not one.after.isr:
            yield one.key, "the ISR is empty"


def s13_the_isr_is_within_the_assignment(history: History, step: Step, world: World) -> Iterator[Wrong]:
    touched = {one.key for one in step.states if one.after is not None}
    for topic in step.topics:
        if topic.after is not None:
            touched |= {(topic.name, number) for number in topic.after.partitions}
    if not is_by_controller(step):
        return
    for key in sorted(touched):
        state, assigned = world.states.get(key), assigned_of(world, key)
        if state is not None and assigned is not None and not set(state.isr) <= set(assigned.replicas):
            yield key, f"ISR {state.isr} has members outside of replicas {assigned.replicas}"


def s14_clean_elections_add_no_member(history: History, step: Step, world: World) -> Iterator[Wrong]:
    """Whether another one was allowed, `rules_admin_requests.py` finds out."""
    for one in _elections(step):
        before, after = one.before, one.after
        assert before is not None
        added = set(after.isr) - set(before.isr)
        if added and not is_unclean(before, after):
            yield one.key, f"an election added {sorted(added)} to the ISR"


def s15_an_elected_leader_lives(history: History, step: Step, world: World) -> Iterator[Wrong]:
    at_ms, slack_ms = step.commit.at_ms, slack_of(history)
    for one in step.states:
        after = one.after
        is_named = after is not None and (one.last is None or one.last.leader_epoch != after.leader_epoch)
        if after is None or not is_named or after.leader == NO_LEADER or not is_by_controller(step):
            continue
        if not world.is_live(after.leader, at_ms, slack_ms):
            yield one.key, f"leader {after.leader} was named and has not lived for {slack_ms} ms"
        elif one.before is not None and one.before.leader != after.leader and world.is_draining(after.leader):
            others = [b for b in after.isr if b != after.leader and _is_settled(history, step, world, b)]
            if others:
                yield one.key, f"leader {after.leader} was elected while it drains, and {others} could lead"


def s16_isrs_grow_by_the_living_only(history: History, step: Step, world: World) -> Iterator[Wrong]:
    for one in step.states:
        before, after = one.before, one.after
        if before is None or after is None or after.leader_epoch != before.leader_epoch or not is_by_controller(step):
            continue
        for added in sorted(set(after.isr) - set(before.isr)):
            if not world.is_live(added, step.commit.at_ms, slack_of(history)):
                yield one.key, f"the ISR grew by {added}, which has not lived for {slack_of(history)} ms"
            elif world.is_draining(added, for_good=True):
                yield one.key, f"the ISR grew by {added}, which shuts down"


def s17_unclean_choices_are_marked(history: History, step: Step, world: World) -> Iterator[Wrong]:
    for one in _elections(step):
        before, after = one.before, one.after
        assert before is not None
        if is_unclean(before, after) and (after.recovery != 1 or after.isr != (after.leader,)):
            yield one.key, f"an unclean choice of {after.leader} that does not say that it recovers alone"
        assigned = assigned_of(world, one.key)
        if is_unclean(before, after) and assigned is not None and after.leader in assigned.adding:
            yield one.key, f"an unclean choice of {after.leader}, which is being added and was never in sync"


def s20_assignments_have_a_shape(history: History, step: Step, world: World) -> Iterator[Wrong]:
    for one in step.topics:
        if one.after is None or not is_by_controller(step):
            continue
        numbers = sorted(one.after.partitions)
        if numbers != list(range(len(numbers))) or not numbers:
            yield (one.name, 0), f"the partitions are numbered {numbers}"
        if one.before is not None and len(one.before.partitions) > len(numbers):
            yield (one.name, 0), f"{len(one.before.partitions)} partitions became {len(numbers)}"
        for number, assigned in one.after.partitions.items():
            replicas = assigned.replicas
            if not replicas or len(set(replicas)) != len(replicas) or min(replicas) < 0:
                yield (one.name, number), f"replicas {replicas}"
            if not set(assigned.adding) | set(assigned.removing) <= set(replicas):
                yield (one.name, number), f"{assigned} adds or removes what it does not have"


def s21_s22_a_reassignment_ends_in_sync_or_goes_back(history: History, step: Step, world: World) -> Iterator[Wrong]:
    """Until its target is in sync, an assignment keeps its replicas, and names those that it gets."""
    for one in step.topics:
        if one.before is None or one.after is None or not is_by_controller(step):
            continue
        for number, before in one.before.partitions.items():
            after, state = one.after.partitions.get(number), world.states.get((one.name, number))
            if after is None or state is None:
                continue
            origin, now = set(before.replicas) - set(before.adding), set(after.replicas)
            is_over = not (after.adding or after.removing) and now != origin
            if (is_over or not origin <= now) and not now <= set(state.isr):
                yield (one.name, number), f"{before} became {after} with ISR {state.isr} only"


def s23_a_deletions_marker_goes_last(history: History, step: Step, world: World) -> Iterator[Wrong]:
    if not is_by_controller(step):
        return
    for name in step.gone_markers:
        was_deleted = any(one.name == name and one.after is None for one in step.topics)
        if name in world.topics and not was_deleted and _has_lost_states(world, name):
            yield (name, 0), "the marker of a deletion that had begun went, and the topic stands"
    for one in step.topics:
        if one.before is not None and one.after is None:
            if f"/config/topics/{one.name}" in world.nodes:
                yield (one.name, 0), "the topic went before its configuration"
            if any(path.startswith(f"/brokers/topics/{one.name}/") for path in world.nodes):
                yield (one.name, 0), "the topic went before its partitions"


def s24_states_are_made_of_assigned_replicas(history: History, step: Step, world: World) -> Iterator[Wrong]:
    """Not of a topic that is gone, and not of one of the same name that does not have that partition."""
    for one in step.states:
        topic = world.topics.get(one.key[0])
        is_made = one.before is None and one.after is not None and is_by_controller(step)
        if is_made and topic is not None and one.key[1] not in topic.partitions:
            yield one.key, "a state was made of what is not assigned"


def s25_a_topics_id_never_changes(history: History, step: Step, world: World) -> Iterator[Wrong]:
    """But of a topic that is to be deleted, whose id a tool dropped: brokers that have deleted it know it no more."""
    for one in step.topics:
        if one.before is None or one.after is None or not is_by_controller(step):
            continue
        is_to_go = f"{DELETE_TOPICS}/{one.name}" in world.nodes
        if not is_to_go and one.before.topic_id is not None and one.after.topic_id != one.before.topic_id:
            yield (one.name, 0), f"topic id {one.before.topic_id} became {one.after.topic_id}"


def _elections(step: Step) -> Iterator[StateChange]:
    """States of a new leader epoch, with a leader, that follow another state."""
    if is_by_controller(step):
        for one in step.states:
            before, after = one.before, one.after
            if before is None or after is None or after.leader == NO_LEADER:
                continue
            if after.leader_epoch != before.leader_epoch:
                yield one


def is_unclean(before: State, after: State | None) -> bool:
    return after is not None and after.leader not in before.isr


def assigned_of(world: World, key: Key) -> Assigned | None:
    topic = world.topics.get(key[0])
    return None if topic is None else topic.partitions.get(key[1])


def slack_of(history: History) -> int:
    """So long may a controller not have heard of a registration that is gone: it may have stood still meanwhile."""
    return history.session_timeout_ms + 1_000


def _is_settled(history: History, step: Step, world: World, broker_id: int) -> bool:
    here = world.registered.get(broker_id)
    if here is None or world.is_draining(broker_id) or f"/klamm/failed_dirs/{broker_id}" in world.nodes:
        return False
    return step.commit.at_ms - here.from_ms > slack_of(history)


def _has_lost_states(world: World, name: str) -> bool:
    return any((name, number) in world.last_states and (name, number) not in world.states
               for number in world.topics[name].partitions)  # fmt: skip


RULES: Final[tuple[Rule, ...]] = tuple(value for name, value in sorted(globals().items()) if re.match(r"s\d\d_", name))
