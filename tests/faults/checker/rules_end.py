"""Rules about how a run went on and ended: every call answered, everything at rest, the seat moved for a reason only.

Of the whole run, as in `rules_tellings.py`; most of them say nothing about a run whose end is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from controller.loop.watched_nodes import LOOK_EVERY_S
from tests.faults.checker.history import SLACK_MS, STOP, STOPS_WITHIN_MS, Fault, History, Lag, Row
from tests.faults.checker.replay_facts import Known, RunRule
from tests.faults.checker.rules_lists import LEAD
from tests.faults.checker.slow_faults import is_forbidden, is_held, waited_ms
from tests.faults.checker.writers import EPOCH, SEAT, Wrong

#: a fault that is over and a session time-out that has passed: so much longer may the seat be lost because of it
FELT_FOR_MS: Final = 3_000
FOREVER_MS: Final = 1 << 62
#: a process that waited so long for a processor, within a few seconds, may be late by the machine
STARVED_MS: Final = 300


def l01_at_rest_a_controller_carries_out_requests(history: History, known: Known) -> Iterator[Wrong]:
    for one in history.calls:
        if one.what == "probe" and one.outcome != "ok":
            yield None, f"at rest, making topic {one.subject} ended as {one.outcome}"


def l11_nothing_waits_long_in_the_inbox(history: History, known: Known) -> Iterator[Wrong]:
    """For more than a second, under any load: a turn asks only ZooKeeper."""
    for lag in _lags(history, "inbox"):
        if not is_held(history, lag.broker_id, lag.since_ms, lag.at_ms):
            yield None, f"broker {lag.broker_id}: something waited in its inbox for over a second before {lag.at_ms}"


def l11_the_end_of_a_term_waits_for_nothing(history: History, known: Known) -> Iterator[Wrong]:
    """With any backlog: a process that lost its session or its seat acts no more, and sends nothing."""
    for (epoch, *_), (holder_id, lost_ms) in zip(known.claims, known.vacated, strict=False):
        late_ms = lost_ms + _noticed_within_ms(history, SEAT, lost_ms)
        sent = [one.sent_ms or 0 for one in history.rpcs if one.controller_epoch == epoch and history.sees == "all"]
        last_ms = max([history.ended_ms.get(epoch, 0), *sent])
        is_excused = is_held(history, holder_id, lost_ms, late_ms)
        if last_ms > late_ms and not is_excused and waited_ms(history, holder_id, lost_ms, last_ms) < STARVED_MS:
            yield None, f"broker {holder_id} acted in epoch {epoch} until {last_ms - lost_ms} ms after it lost the seat"


def l11_a_term_whose_epoch_is_gone_ends(history: History, known: Known) -> Iterator[Wrong]:
    """At once, as soon as another client writes or deletes the node that keeps it: another term could draw the same.
    Judged in virtual time."""
    end_ms = max(history.commits[-1].at_ms, 0 if history.end is None else history.end.at_ms)
    for at_ms in known.epoch_harmed_ms if history.sees == "all" else ():
        holding = (one for one in known.tenures if one.at_ms < at_ms and (one.until_ms is None or at_ms < one.until_ms))
        late_ms = at_ms + _noticed_within_ms(history, EPOCH, at_ms)
        for one in holding:
            over_ms = min(history.ended_ms.get(one.epoch, FOREVER_MS), one.until_ms or FOREVER_MS)
            is_excused = is_held(history, one.broker_id, at_ms, late_ms) or _is_hit(history, one.broker_id, late_ms)
            if late_ms < min(over_ms, end_ms) and not is_excused:
                yield None, f"epoch {one.epoch} went on for over {late_ms - at_ms} ms after {EPOCH} was harmed"


def _noticed_within_ms(history: History, path: str, at_ms: int) -> int:
    """No watch tells of a change in a node that may not be read; a process that relies on it looks now and then."""
    is_told = not is_forbidden(history, (path,), at_ms)
    return history.ends_within_ms + (0 if is_told else round(LOOK_EVERY_S * 1_000))


def _is_hit(history: History, broker_id: int, by_ms: int) -> bool:
    """Whether a fault fell on a broker that may cost it the seat: if it is dead, its session lives for a while."""
    since_ms = by_ms - history.session_timeout_ms - history.ends_within_ms
    return any(
        one.can_move_seat and one.broker_id == broker_id and since_ms <= one.at_ms <= by_ms for one in history.faults
    )


def l12_no_loop_stands_still(history: History, known: Known) -> Iterator[Wrong]:
    """For more than a second, unless it was made to, or had to wait for a processor."""
    for lag in _lags(history, "loop"):
        yield None, f"broker {lag.broker_id}: its event loop stood still for more than a second before {lag.at_ms}"


def _lags(history: History, what: str) -> Iterator[Lag]:
    """Those that neither a fault nor the machine explains to the kernel."""
    for lag in history.end.lags if history.end is not None else ():
        if lag.what == what and not lag.was_held and lag.waited_ms < STARVED_MS:
            yield lag


def l13_every_call_is_answered(history: History, known: Known) -> Iterator[Wrong]:
    if history.end is not None:
        for one in history.calls:
            if one.ended_ms is None:
                yield None, f"{one.what} {one.subject} was never answered"


def l14_it_converges(history: History, known: Known) -> Iterator[Wrong]:
    """Within its time after healing: one controller, every view ZooKeeper's, all led that can be, no work left."""
    end = history.end
    if end is None:
        return
    if end.converged_after_ms is None:
        yield None, f"not converged {end.allowed_ms} ms after healing"
    if len(end.active_ids) != 1:
        yield None, f"active controllers at the end: {end.active_ids}"
    world = known.world
    states = {key: (one.leader, one.leader_epoch, one.isr, one.version) for key, one in world.states.items()}
    for broker_id, view in sorted(end.views.items()):
        for key in sorted(states.keys() | view.keys()):
            if states.get(key) != view.get(key):
                yield key, f"broker {broker_id} believes {view.get(key)}, ZooKeeper has {states.get(key)}"
    for key, state in sorted(world.states.items()):
        if state.leader not in world.registered and set(state.isr) & world.registered.keys():
            yield key, f"nobody leads it though {sorted(set(state.isr) & world.registered.keys())} could"


def l14_no_broker_refuses_a_standing_state(history: History, known: Known) -> Iterator[Wrong]:
    """At rest, every live broker has taken the last request about each replica, as far as its state still stands."""
    if history.end is None:
        return
    last: dict[tuple[int, str, int], tuple[Row, bool]] = {}
    for rpc in history.heard:
        here = known.world.registered.get(rpc.broker_id)
        if rpc.kind == LEAD and here is not None and here.epoch == rpc.broker_epoch and not rpc.error_code:
            for row in rpc.rows or ():
                is_refused = (row.topic_id, row.partition) in rpc.refused
                last[rpc.broker_id, row.topic_id, row.partition] = (row, is_refused)
    for (broker_id, topic_id, number), (row, is_refused) in sorted(last.items()):
        state = known.world.states.get((known.names.get(topic_id, ""), number))
        if is_refused and state is not None and (state.leader, state.leader_epoch) == (row.leader, row.leader_epoch):
            yield (known.names[topic_id], number), f"broker {broker_id} refuses {row}, which stands"


def l06_l08_no_intent_is_left(history: History, known: Known) -> Iterator[Wrong]:
    if history.end is None:
        return
    pending = re.compile(
        r"/admin/(delete_topics/.+|reassign_partitions|preferred_replica_election)"
        r"|/(isr_change|log_dir_event)_notification/.+"
    )
    for path in sorted(known.world.nodes):
        if pending.fullmatch(path):
            yield None, f"{path} is left"
    for name, topic in sorted(known.world.topics.items()):
        for number, assigned in topic.partitions.items():
            if assigned.adding or assigned.removing:
                yield (name, number), f"still being reassigned: {assigned}"
            if (name, number) not in known.world.states:
                yield (name, number), "was never led"
    for broker_id, strays in (history.end.strays or {}).items():
        yield None, f"broker {broker_id} holds what nobody assigned to it: {strays}"


def l15_the_seat_moves_only_for_a_reason(history: History, known: Known) -> Iterator[Wrong]:
    """Each tenure that another one followed was ended by a fault of its own: one that fell on the seat's holder, or on
    no broker alone, and did so lately enough. Or its session ended because the machine kept its holder, or ZooKeeper,
    from a processor for half of it."""
    if history.end is None:
        return
    causes = [one for one in history.faults if one.can_move_seat]
    causes.sort(key=lambda one: (one.broker_id is None, _felt_until_ms(one)))  # weak explanations are used up first
    for (holder_id, lost_ms), (epoch, *_) in zip(known.vacated, known.claims[1:], strict=False):
        cause = next((one for one in causes if _explains(one, holder_id, lost_ms, history)), None)
        since_ms = lost_ms - history.session_timeout_ms - FELT_FOR_MS
        if cause is None and waited_ms(history, holder_id, since_ms, lost_ms) < history.session_timeout_ms // 2:
            yield None, f"broker {holder_id} lost the seat for no reason; epoch {epoch} followed"
        elif cause is not None:
            causes.remove(cause)


def _felt_until_ms(fault: Fault) -> int:
    """A process that is asked to stop holds the seat until it leads nothing any more, or it has asked often enough."""
    return fault.at_ms + fault.lasts_ms + (STOPS_WITHIN_MS if fault.kind == STOP else 0)


def _explains(fault: Fault, holder_id: int, lost_ms: int, history: History) -> bool:
    felt_ms = _felt_until_ms(fault) + history.session_timeout_ms + FELT_FOR_MS
    return fault.broker_id in (None, holder_id) and fault.at_ms - SLACK_MS <= lost_ms <= felt_ms


def no_process_met_a_bug(history: History, known: Known) -> Iterator[Wrong]:
    for one in history.bugs:
        yield None, one


RULES: Final[tuple[RunRule, ...]] = tuple(
    value for name, value in sorted(globals().items()) if re.match(r"[sl]\d\d_|no_process", name)
)
