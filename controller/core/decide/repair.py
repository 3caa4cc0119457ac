"""Bringing partitions to their right state: the one decision behind broker failures, returns, and foreign states.

Given the online brokers, a partition needs at most one write. `elections.py` says why it gets this leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from controller.core.bitset import bits_of
from controller.core.causes import Cause, Failure, Reason
from controller.core.changes.cluster import StateDecided
from controller.core.changes.duties import ElectionsFailed
from controller.core.decide.work import Context, Decided
from controller.core.elections import first_leadership, is_unclean, is_undisturbed, repaired, status_of
from controller.core.model import NO_LEADER, Leadership, Partition, Replicas

#: the input of an election, beside the live brokers: replicas, added replicas, leader, ISR, recovery, and whether an
#: unclean election is allowed
_Likeness = tuple[Replicas, Replicas, int, Replicas, int, bool]


class LiveBrokers(msgspec.Struct, frozen=True):
    """The brokers of a decision: live ones, and those of them that bounced in this very event."""

    online: frozenset[int]
    returning: frozenset[int] = frozenset()
    #: this decision about the first partition of each likeness
    alike: dict[_Likeness, StateDecided] = {}


def repair_topic(
    context: Context, topic: str, numbers: Iterable[int], live_brokers: LiveBrokers, why: Reason, *, step: int = 0
) -> Iterator[Decided]:
    """Bring partitions of one topic to their right state, given the online brokers."""
    cluster = context.cluster
    known = cluster.topics[topic]
    if cluster.duties.is_leaving(topic):
        return
    duties = cluster.duties
    # an online broker serves all replicas that it hosts, and was there all the time
    is_plain = not live_brokers.returning and not duties.failed_dirs and not duties.departed
    serving = None if duties.failed_dirs else live_brokers.online
    avoided = cluster.avoided_ids
    allow_unclean = duties.is_unclean_allowed(topic, default=cluster.unclean_default)
    unled: list[int] = []
    unborn: list[int] = []
    for number in numbers:
        if cluster.unreadable and (topic, number) in cluster.unreadable:
            continue
        partition = known.partitions[number]
        state = partition.state
        likeness: _Likeness | None = None
        change: StateDecided | None = None
        if is_plain and state is not None:
            if is_undisturbed(partition.replicas, state, live_brokers.online):
                continue
            likeness = (partition.replicas, partition.adding, state.leader, state.isr, state.recovery, allow_unclean)
            if (like := live_brokers.alike.get(likeness)) is not None:
                change = _decided_as(like, topic, number, state.leader_epoch + 1)
        if change is None:
            change = repair_partition(
                context, topic, number, partition, live_brokers, why,
                allow_unclean=allow_unclean, serving=serving, avoided=avoided,
            )  # fmt: skip
            if change is not None and likeness is not None:
                live_brokers.alike[likeness] = change
        if change is not None:
            yield step, change
            if change.state.leader == NO_LEADER:
                unled.append(number)
        elif state is None:
            unborn.append(number)
        elif state.leader not in live_brokers.online:
            unled.append(number)
    if unborn:
        yield step, ElectionsFailed(topic, Failure.NO_REPLICA_ALIVE, bits_of(unborn), why.cause)
    if unled:
        yield step, ElectionsFailed(topic, Failure.NOBODY_CAN_LEAD, bits_of(unled), why.cause)


def _decided_as(like: StateDecided, topic: str, number: int, leader_epoch: int) -> StateDecided:
    """Returns the decision about a like partition, for this one. Equal leaderships are one value."""
    state = like.state
    if state.leader_epoch != leader_epoch:
        state = Leadership(state.leader, leader_epoch, state.isr, state.controller_epoch, state.recovery)
    return StateDecided(topic, number, state, like.source, like.target, like.reason, like.cause, False, like.is_unclean)


def led_first(
    context: Context,
    topic: str,
    number: int,
    new: Partition,
    live_ids: frozenset[int],
    why: Reason,
    *,
    step: int,
    is_new: bool = True,
    is_anew: bool = False,
) -> Iterator[Decided]:
    """A partition that was never led; one of which no assigned replica is alive waits, which is said when it is new.
    `is_anew`: what is known of its name is about an earlier topic."""
    change = repair_partition(context, topic, number, new, LiveBrokers(live_ids), why, is_anew=is_anew)
    if change is not None:
        yield step, change
    elif is_new:
        yield step, ElectionsFailed(topic, Failure.NO_REPLICA_ALIVE, 1 << number, why.cause)


def repair_partition(
    context: Context,
    topic: str,
    number: int,
    partition: Partition,
    live_brokers: LiveBrokers,
    why: Reason,
    *,
    allow_unclean: bool | None = None,
    serving: frozenset[int] | None = None,
    avoided: frozenset[int] | None = None,
    is_anew: bool = False,
) -> StateDecided | None:
    """Returns the one write that a partition needs now, or None. Unclean elections as configured, served and avoided
    brokers as believed, unless the caller says otherwise."""
    cluster = context.cluster
    avoided = cluster.avoided_ids if avoided is None else avoided
    online = cluster.serving_ids(topic, number, live_brokers.online) if serving is None else serving
    state: Leadership | None
    if partition.state is None and not is_anew and (last := cluster.lost_state(topic, number)) is not None:
        return made_again(context, topic, number, partition, last, live_brokers.online)
    if partition.state is None:
        leaving = cluster.leaving_ids
        state = first_leadership(
            partition.replicas,
            online,
            cluster.controller_epoch,
            draining=avoided,
            leaving=leaving,
            adding=partition.adding,
        )
    else:
        returning = live_brokers.returning
        if cluster.duties.departed:
            returning |= cluster.duties.departed_of(topic, number)
        state = repaired(
            partition.replicas,
            partition.state,
            online,
            cluster.controller_epoch,
            returning=returning,
            draining=avoided,
            adding=partition.adding,
            allow_unclean=cluster.is_unclean_allowed(topic) if allow_unclean is None else allow_unclean,
        )
    if state is None:
        return None
    return state_decided(context, topic, number, partition.state, state, why, live_ids=live_brokers.online)


def made_again(
    context: Context, topic: str, number: int, partition: Partition, last: Leadership, live_ids: frozenset[int]
) -> StateDecided | None:
    """Returns the write of a state whose znode vanished, from the last one, with a higher leader epoch. Brokers would
    refuse to start over from 0, and only the last state names the replicas that were in sync."""
    cluster, replicas, adding = context.cluster, partition.replicas, partition.adding
    avoided, online = cluster.avoided_ids, cluster.serving_ids(topic, number, live_ids)
    if set(last.isr) & set(replicas):
        # its leader may have died while the znode was malformed and was left alone
        state = repaired(replicas, last, online, context.epoch, draining=avoided) or last
    elif (anew := first_leadership(replicas, online, context.epoch, draining=avoided, adding=adding)) is not None:
        state = anew  # no assigned replica was in sync
    else:
        return None
    state = Leadership(state.leader, last.leader_epoch + 1, state.isr, context.epoch, state.recovery)
    source, target = status_of(None, live_ids), status_of(state, live_ids)
    return StateDecided(topic, number, state, source, target, "state znode had vanished", Cause.STATE_LOST)


def state_decided(
    context: Context,
    topic: str,
    number: int,
    before: Leadership | None,
    after: Leadership,
    why: Reason,
    *,
    live_ids: frozenset[int] | None = None,
    stopped: Replicas = (),
) -> StateDecided:
    """Returns the change that writes a leadership, and stops the replicas of brokers that shut down."""
    believed_ids = context.cluster.live_ids
    live_ids = believed_ids if live_ids is None else live_ids
    source, target = status_of(before, believed_ids or live_ids), status_of(after, live_ids)
    unclean = is_unclean(before, after)
    reason = f"{why.words}; unclean election" if unclean else why.words
    if not stopped:
        return StateDecided(topic, number, after, source, target, reason, why.cause, False, unclean)
    deposed_id = before.leader if before is not None and before.leader in stopped else None
    return StateDecided(topic, number, after, source, target, reason, why.cause, stopped=stopped, deposed_id=deposed_id)
