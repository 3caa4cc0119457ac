"""Rules about brokers' requests and the controller's answers: ISRs, and leave to stop. Of the whole run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tests.faults.checker.history import SLACK_MS, BrokerRequest, History, IsrProposal
from tests.faults.checker.replay import state_of, topic_of
from tests.faults.checker.replay_facts import Known, RunRule, Written
from tests.faults.checker.rules_admin_requests import said_of
from tests.faults.checker.rules_zookeeper import slack_of
from tests.faults.checker.writers import Wrong

#: the cause of an ISR that its leader asked for
_AS_ASKED: Final = "isr_asked"


def s16_the_incarnation_that_joins_an_isr_is_the_one_its_leader_saw(history: History, known: Known) -> Iterator[Wrong]:
    """A member is granted by the broker epoch that its leader heard from, and that is its registration."""
    granted = {(one.topic_id, one.key[1], one.state.version): one for one in known.written if one.by_controller}
    for asking in history.broker_requests:
        for proposal in asking.proposals:
            stands = granted.get(
                (proposal.topic_id, proposal.partition, -1 if proposal.version is None else proposal.version)
            )
            if stands is None or stands.before is None or stands.state.isr != tuple(one for one, _ in proposal.isr):
                continue
            for broker_id, epoch in _joining(proposal, stands):
                if not _was_registered(known, broker_id, epoch, stands.at_ms - slack_of(history), asking.at_ms):
                    yield stands.key, f"broker {broker_id} joined the ISR as {epoch}, as which it was not registered"


def s08_without_a_new_leader_epoch_isrs_change_as_leaders_asked(history: History, known: Known) -> Iterator[Wrong]:
    """Every other decision of a controller has a new leader epoch. A leader's request to the controller beside it is
    not seen everywhere; then the state's line says why it was written."""
    recorded = said_of(history, known)
    asked = {
        (asking.sender_id, proposal.topic_id, proposal.partition, proposal.known_version, proposal.leader_epoch,
         proposal.recovery, tuple(broker_id for broker_id, _ in proposal.isr))
        for asking in history.broker_requests
        for proposal in asking.proposals
    }  # fmt: skip
    for one in known.written:
        before, after = one.before, one.state
        if before is None or not one.by_controller:
            continue
        said = recorded.get((one.key, one.zxid))
        cause = None if said is None else said.cause
        if before.leader_epoch != after.leader_epoch:
            if cause == _AS_ASKED:
                yield one.key, f"{cause}, and the leader epoch rose from {before.leader_epoch} to {after.leader_epoch}"
            continue
        if history.has_direct_leaders and one.by_id == after.leader:
            continue  # it wrote this as the leader
        is_seen = one.by_id is not None and history.has_seen(after.leader, one.by_id)
        proposal = (
            after.leader,
            one.topic_id,
            one.key[1],
            before.version,
            before.leader_epoch,
            after.recovery,
            after.isr,
        )
        if (is_seen and proposal not in asked) or cause not in (None, _AS_ASKED):
            change = f"ISR {before.isr} became {after.isr} in leader epoch {after.leader_epoch}"
            yield one.key, f"{change}, which its leader {after.leader} had not asked for: {cause}"


def _joining(proposal: IsrProposal, stands: Written) -> Iterator[tuple[int, int]]:
    assert stands.before is not None
    yield from (one for one in proposal.isr if one[0] not in stands.before.isr)


def _was_registered(known: Known, broker_id: int, epoch: int, from_ms: int, until_ms: int) -> bool:
    return any(
        (one.broker_id, one.epoch) == (broker_id, epoch)
        and one.from_ms <= until_ms
        and (one.until_ms is None or one.until_ms >= from_ms)
        for one in known.registrations
    )


def s27_a_broker_that_may_stop_leads_no_partition_that_others_could(history: History, known: Known) -> Iterator[Wrong]:
    """Nothing that has another replica, that is, except topics being deleted, and topics or states that were hidden, or
    malformed in that term: a controller cannot hand over a partition that it cannot read, and it may hear late of its
    repair."""
    done = [
        one
        for one in history.broker_requests
        if one.kind == "controlled-shutdown" and one.error_code == 0 and not one.remaining
    ]
    for asking in done:
        claimed_ms = max((at_ms for *_, at_ms in known.claims if at_ms <= asking.at_ms), default=0)
        for led in _led_by(asking, known):
            if led.key[0] in history.hidden_topics:
                continue
            marker = known.stood(f"/admin/delete_topics/{led.key[0]}", asking.at_ms - SLACK_MS, asking.at_ms)
            topic = known.stood(f"/brokers/topics/{led.key[0]}", claimed_ms - SLACK_MS, asking.at_ms)
            state = known.stood(_state_path(*led.key), claimed_ms - SLACK_MS, asking.at_ms)
            if any(one.data is not None and topic_of(one.data, 0) is None for one in topic):
                continue
            if any(one.data is not None and state_of(one.data, 0) is None for one in state):
                continue
            if len(led.replicas) > 1 and not any(one.data is not None for one in marker):
                yield led.key, f"broker {asking.sender_id} was told that it may stop, and led it"


def _state_path(topic: str, partition: int) -> str:
    return f"/brokers/topics/{topic}/partitions/{partition}/state"


def _led_by(asking: BrokerRequest, known: Known) -> Iterator[Written]:
    """Returns the partitions that its sender led for a moment already when it was answered."""
    newest = {one.key: one for one in known.written if one.at_ms <= asking.at_ms}
    for one in newest.values():
        is_old = one.at_ms < asking.at_ms - SLACK_MS
        if one.state.leader == asking.sender_id and is_old and not known.is_gone_since(one):
            yield one


RULES: Final[tuple[RunRule, ...]] = tuple(
    value for name, value in sorted(globals().items()) if re.match(r"s\d\d_", name)
)
