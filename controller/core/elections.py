"""Leader elections: each rule one expression, all of them in assignment order.

An election looks at the assignment, the leadership that stands, and the online replicas, and at what its caller says of
them: brokers that bounced, drain or leave, replicas that a reassignment adds, and whether an unclean election is
allowed. The leader epoch rises by one for each election, however many brokers it concerns: Kafka walks replica by
replica and may raise it twice. Two leaderships that are no election's differ: an ISR that a leader asked for keeps the
leader epoch (`with_isr`), and where brokers refuse the leader epoch it may leap. Final leader and ISR are Kafka's, with
two deliberate differences. When the last in-sync replicas vanish together, the ISR they formed is kept, since each of
them holds all committed data. And a replica that is being added never leads before it was in sync, not even in an
unclean election: it may hold nothing at all.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet

from controller.core.model import FIRST_LEADER_EPOCH, NO_LEADER, RECOVERING, Leadership, Replicas
from controller.core.states import PartitionStatus

#: looked up once: each decision about a partition asks
_NEW, _ONLINE, _OFFLINE = PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE


def first_leadership(
    replicas: Replicas,
    online: AbstractSet[int],
    controller_epoch: int,
    *,
    draining: AbstractSet[int] = frozenset(),
    leaving: AbstractSet[int] = frozenset(),
    adding: Replicas = (),
) -> Leadership | None:
    """Of a new partition: the first online replica leads all online ones. None when none is online. A draining broker
    leads, and a leaving broker is in sync, only without another candidate. A replica that is being added is neither as
    long as others are assigned, online or not: the state was lost, and the others may hold data."""
    full = tuple(broker_id for broker_id in replicas if broker_id not in adding) or replicas
    there = tuple(broker_id for broker_id in full if broker_id in online)
    isr = tuple(broker_id for broker_id in there if broker_id not in leaving) or there
    if not isr:
        return None
    return Leadership(_candidates(replicas, isr, draining)[0], FIRST_LEADER_EPOCH, isr, controller_epoch)


def repaired(
    replicas: Replicas,
    state: Leadership,
    online: AbstractSet[int],
    controller_epoch: int,
    *,
    returning: AbstractSet[int] = frozenset(),
    draining: AbstractSet[int] = frozenset(),
    adding: Replicas = (),
    allow_unclean: bool = False,
) -> Leadership | None:
    """Offline election: the leadership without the replicas that are not online; None when it stays as it is.

    `returning` are brokers that bounced: their unacknowledged work is lost, so they leave first and may be elected
    again only without another candidate. `adding` are replicas that a reassignment adds.
    """
    full = tuple([broker_id for broker_id in replicas if broker_id not in adding]) if adding else replicas
    steady = online - returning if returning else online
    decided = _led(replicas, state, steady, draining, full if allow_unclean and not returning else ())
    if decided[0] == NO_LEADER and returning:
        decided = _led(replicas, state, online, draining, full if allow_unclean else ())
    leader, isr, recovery = decided
    has_bounced = state.leader in returning  # the same leader in another life: its followers must start anew
    if (leader, isr, recovery) == (state.leader, state.isr, state.recovery) and not has_bounced:
        return None
    if not set(isr) <= set(replicas):
        return None  # a tool assigned it to brokers that hold nothing: there is no right answer to write
    return Leadership(leader, state.leader_epoch + 1, isr, controller_epoch, recovery)


def is_undisturbed(replicas: Replicas, state: Leadership, online: frozenset[int]) -> bool:
    """Returns whether `repaired` has nothing to do when no broker bounced; cheap, and true of nearly all partitions."""
    isr = state.isr
    if state.leader not in isr or not online.issuperset(isr):
        return False
    return isr == replicas or set(isr) <= set(replicas)


def preferred(
    replicas: Replicas, state: Leadership, online: AbstractSet[int], controller_epoch: int
) -> Leadership | None:
    """Preferred: the first replica, if it is online and in sync; None when it is not, or leads already."""
    first = replicas[0]
    if first == state.leader or first not in online or first not in state.isr:
        return None
    return Leadership(first, state.leader_epoch + 1, state.isr, controller_epoch, state.recovery)


def drained(
    replicas: Replicas,
    state: Leadership,
    online: AbstractSet[int],
    controller_epoch: int,
    *,
    draining: AbstractSet[int],
    leaving: AbstractSet[int],
) -> Leadership | None:
    """Controlled shutdown: led by no draining broker, and without leaving ones, where others can do it; None when no
    other can, or nothing changes. Never offline by this."""
    staying = tuple([broker_id for broker_id in state.isr if broker_id not in leaving])
    able = [b for b in replicas if b in staying and b in online and b not in draining]
    if not able:
        return None
    leader = state.leader if state.leader in able else able[0]
    if (leader, staying) == (state.leader, state.isr):
        return None
    return Leadership(leader, state.leader_epoch + 1, staying, controller_epoch, state.recovery)


def completed(
    target: Replicas,
    state: Leadership,
    online: AbstractSet[int],
    controller_epoch: int,
    *,
    draining: AbstractSet[int] = frozenset(),
) -> Leadership | None:
    """Reassigned: led by a target replica, with only targets in the ISR; None when no target replica can lead."""
    isr = tuple(broker_id for broker_id in state.isr if broker_id in target)
    able = _candidates(target, [broker_id for broker_id in isr if broker_id in online], draining)
    if not able:
        return None
    leader = state.leader if state.leader in able else able[0]
    return Leadership(leader, state.leader_epoch + 1, isr, controller_epoch, state.recovery)


def _candidates(replicas: Replicas, in_sync: Collection[int], draining: AbstractSet[int]) -> list[int]:
    """Returns the replicas that can lead, in assignment order; draining ones only if there is no other."""
    able = [broker_id for broker_id in replicas if broker_id in in_sync]
    return [broker_id for broker_id in able if broker_id not in draining] or able if draining else able


def _led(
    replicas: Replicas,
    state: Leadership,
    online: AbstractSet[int],
    draining: AbstractSet[int],
    unclean: Replicas,
) -> tuple[int, Replicas, int]:
    """Returns leader, ISR and recovery. `unclean`: replicas that may lead without having been in sync."""
    in_sync = tuple([broker_id for broker_id in state.isr if broker_id in online and broker_id in replicas])
    if state.leader in in_sync:
        return state.leader, in_sync, state.recovery
    if in_sync:
        return _candidates(replicas, in_sync, draining)[0], in_sync, state.recovery
    if able := _candidates(unclean, online, draining):
        return able[0], (able[0],), RECOVERING
    kept = tuple(broker_id for broker_id in state.isr if broker_id in replicas)
    if not kept:
        return state.leader, state.isr, state.recovery
    return NO_LEADER, kept, state.recovery


def is_unclean(before: Leadership | None, after: Leadership) -> bool:
    """Returns whether a decision chose a leader that was not in sync, so that committed data may be lost."""
    return before is not None and after.leader != NO_LEADER and after.leader not in before.isr


def status_of(state: Leadership | None, live_ids: AbstractSet[int]) -> PartitionStatus:
    """Returns a partition's state, derived: new until first led, online while its leader lives."""
    if state is None:
        return _NEW
    return _ONLINE if state.leader in live_ids else _OFFLINE


def with_isr(state: Leadership, isr: Replicas, recovery: int, controller_epoch: int) -> Leadership:
    """The ISR its leader asked for: the leader epoch stays."""
    return Leadership(state.leader, state.leader_epoch, isr, controller_epoch, recovery)
