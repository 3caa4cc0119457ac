"""Who leads: each rule one expression, all of them in assignment order.

An election never looks at anything but the assignment, the leadership that stands, and who is online. The leader
epoch rises by one for each decision, however many brokers it concerns: Kafka walks replica by replica and may
raise it twice. Final leader and ISR are Kafka's, with one deliberate difference: when the last in-sync replicas
vanish together, the ISR they formed is kept, since each of them holds all committed data.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from controller.core.model import FIRST_LEADER_EPOCH, NO_LEADER, RECOVERING, Leadership, Replicas
from controller.core.states import PartitionStatus


def first_leadership(replicas: Replicas, online: AbstractSet[int], controller_epoch: int) -> Leadership | None:
    """Of a new partition: the first online replica leads all online ones. None when nobody is online."""
    isr = tuple(broker_id for broker_id in replicas if broker_id in online)
    if not isr:
        return None
    return Leadership(isr[0], FIRST_LEADER_EPOCH, isr, controller_epoch)


def repaired(
    replicas: Replicas,
    state: Leadership,
    online: AbstractSet[int],
    controller_epoch: int,
    *,
    returning: AbstractSet[int] = frozenset(),
    allow_unclean: bool = False,
) -> Leadership | None:
    """The leadership after those who are not online left it; None when nothing has to change.

    `returning` are brokers that bounced: what they had in hand is gone, so they leave first and may be elected again
    only if nobody else can lead.
    """
    steady = online - returning if returning else online
    decided = _led(replicas, state, steady, allow_unclean=allow_unclean and not returning)
    if decided[0] == NO_LEADER and returning:
        decided = _led(replicas, state, online, allow_unclean=allow_unclean)
    leader, isr, recovery = decided
    has_bounced = state.leader in returning  # the same leader in another life: its followers must start anew
    if (leader, isr, recovery) == (state.leader, state.isr, state.recovery) and not has_bounced:
        return None
    return Leadership(leader, state.leader_epoch + 1, isr, controller_epoch, recovery)


def _led(
    replicas: Replicas, state: Leadership, online: AbstractSet[int], *, allow_unclean: bool
) -> tuple[int, Replicas, int]:
    in_sync = tuple(broker_id for broker_id in state.isr if broker_id in online and broker_id in replicas)
    if state.leader in in_sync:
        return state.leader, in_sync, state.recovery
    if in_sync:
        return next(broker_id for broker_id in replicas if broker_id in in_sync), in_sync, state.recovery
    unclean = next((broker_id for broker_id in replicas if broker_id in online), None) if allow_unclean else None
    if unclean is not None:
        return unclean, (unclean,), RECOVERING
    kept = tuple(broker_id for broker_id in state.isr if broker_id in replicas)
    if not kept:  # somebody assigned it to brokers that hold nothing: there is no right answer to write
        return state.leader, state.isr, state.recovery
    return NO_LEADER, kept, state.recovery


def is_unclean(before: Leadership | None, after: Leadership) -> bool:
    """Whether a decision chose a leader that was not in sync, so that committed data may be lost."""
    return before is not None and after.leader != NO_LEADER and after.leader not in before.isr


def status_of(state: Leadership | None, live_ids: AbstractSet[int]) -> PartitionStatus:
    """A partition's state, derived: new until first led, online while its leader lives."""
    if state is None:
        return PartitionStatus.NEW
    return PartitionStatus.ONLINE if state.leader in live_ids else PartitionStatus.OFFLINE


def with_isr(state: Leadership, isr: Replicas, recovery: int, controller_epoch: int) -> Leadership:
    """The ISR its leader asked for: the leader epoch stays."""
    return Leadership(state.leader, state.leader_epoch, isr, controller_epoch, recovery)
