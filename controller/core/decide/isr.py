"""In-sync replicas: the requests of leaders, and states that others wrote and announced.

Leaders ask (AlterPartition) and keep the ISR they had until the answer. The checks and their order are Kafka's,
and three it lacks: the sender leads the partition, the ISR stays
inside the assignment, and every member is named with its present registration, so that a replica that lost its disk
in between cannot slip in (KIP-903).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec

from controller.core.belief.cluster import Cluster
from controller.core.causes import Cause, Reason
from controller.core.changes.cluster import (
    NotificationRead,
    Refused,
    StateDecided,
    StateFound,
    StateLost,
    Unreadable,
)
from controller.core.changes.duties import broker_subject, topic_subject
from controller.core.codes import Code
from controller.core.decide.repair import LiveBrokers, made_again, repair_partition
from controller.core.decide.work import Context, Decided, Work, work_of
from controller.core.elections import status_of, with_isr
from controller.core.events import AlterPartitionAsked, IsrProposal, StateFact, StatesSeen
from controller.core.model import NO_VERSION, RECOVERED, RECOVERING, Leadership, Partition


class IsrVerdict(msgspec.Struct, frozen=True):
    """The answer about one partition: the code, and the state that stands now."""

    topic_id: str
    partition: int
    code: Code
    state: Leadership | None
    version: int


def on_states_seen(context: Context, event: StatesSeen) -> Iterator[Work]:
    """Believe the states of other writers (step 0), repair them if need be (1), then remove their announcements (2)."""
    by_topic: dict[str, list[StateFact]] = {}
    for fact in event.facts:
        by_topic.setdefault(fact.topic, []).append(fact)
    for topic, facts in sorted(by_topic.items()):
        yield Work(topic_subject(topic), partial(_see_states, context, facts))
    for path, version in event.notifications.items():
        change = NotificationRead(path, version)
        yield work_of(2, change)


def on_alter_partition_asked(context: Context, event: AlterPartitionAsked) -> Iterator[Work]:
    """A leader's proposals, topic by topic."""
    broker = context.cluster.brokers.get(event.broker_id)
    if broker is None or broker.epoch != event.broker_epoch:
        refused = Refused(broker_subject(event.broker_id), Code.STALE_BROKER_EPOCH, "not the present registration")
        yield work_of(0, refused)
        return
    by_topic: dict[str, dict[int, IsrProposal]] = {}
    for proposal in event.proposals:  # of two proposals for one partition the later one counts
        by_topic.setdefault(proposal.topic_id, {})[proposal.partition] = proposal
    for topic_id, proposals in by_topic.items():
        name = context.cluster.names_by_id.get(topic_id, f"with id {topic_id}")
        yield Work(topic_subject(name), partial(_grant, context, event.broker_id, name, list(proposals.values())))


def verdicts_for(
    cluster: Cluster, event: AlterPartitionAsked, refused: Iterable[Refused], stood: Iterable[StateDecided]
) -> list[IsrVerdict]:
    """Returns the answer to each proposal. One that was granted and does not stand met another writer."""
    codes = {(one.topic_id, one.partition): one.code for one in refused}
    left_out = {one.subject: one.code for one in refused if one.partition < 0}  # parked topics
    granted = {(one.topic, one.partition) for one in stood}
    verdicts = []
    for proposal in event.proposals:
        name = cluster.names_by_id.get(proposal.topic_id, "")
        code = codes.get((proposal.topic_id, proposal.partition), left_out.get(topic_subject(name)))
        if code is None:
            code = Code.NONE if (name, proposal.partition) in granted else Code.INVALID_UPDATE_VERSION
        known = cluster.partition(name, proposal.partition)
        state, version = (None, NO_VERSION) if known is None else (known.state, known.version)
        verdicts.append(IsrVerdict(proposal.topic_id, proposal.partition, code, state, version))
    return verdicts


def _grant(context: Context, sender: int, topic: str, proposals: Sequence[IsrProposal]) -> Iterator[Decided]:
    cluster = context.cluster
    for proposal in proposals:
        known = cluster.partition(topic, proposal.partition)
        verdict = _verdict(cluster, sender, topic, known, proposal)
        if verdict is not None or known is None or known.state is None:
            code, detail = verdict or (Code.UNKNOWN_TOPIC_OR_PARTITION, "")
            yield 0, Refused(topic_subject(topic), code, detail, proposal.topic_id, proposal.partition)
            continue
        isr = tuple(broker_id for broker_id, _ in proposal.isr)
        state = with_isr(known.state, isr, proposal.recovery, context.epoch)
        source, target = status_of(known.state, cluster.live_ids), status_of(state, cluster.live_ids)
        reason = f"leader {sender} asked"
        yield 0, StateDecided(topic, proposal.partition, state, source, target, reason, Cause.ISR_ASKED, by_leader=True)


def _verdict(
    cluster: Cluster, sender: int, topic: str, known: Partition | None, proposal: IsrProposal
) -> tuple[Code, str] | None:
    """Why a proposal is not granted (or need not be: code NONE); None when it is to be written."""
    if topic not in cluster.topics:
        return Code.UNKNOWN_TOPIC_ID, "unknown topic id"
    if cluster.duties.is_leaving(topic):
        return Code.UNKNOWN_TOPIC_OR_PARTITION, "the topic is being deleted"
    if known is None or known.state is None:
        return Code.UNKNOWN_TOPIC_OR_PARTITION, "unknown partition, or one never led"
    state = known.state
    if proposal.version > known.version or proposal.leader_epoch > state.leader_epoch:
        return Code.NOT_CONTROLLER, "the leader knows more than this controller"
    if proposal.leader_epoch < state.leader_epoch:
        return Code.FENCED_LEADER_EPOCH, f"the leader epoch is {state.leader_epoch}"
    isr = tuple(broker_id for broker_id, _ in proposal.isr)
    if (sender, isr, proposal.recovery) == (state.leader, state.isr, state.recovery):
        return Code.NONE, "stands already"
    if proposal.version < known.version:
        return Code.INVALID_UPDATE_VERSION, f"the version is {known.version}"
    if sender != state.leader or sender not in isr or len(set(isr)) != len(isr) or not set(isr) <= {*known.replicas}:
        return Code.INVALID_REQUEST, "not from the leader, or not a set of its replicas"
    if (topic, proposal.partition) in cluster.unreadable:
        return Code.INVALID_UPDATE_VERSION, "its znode is malformed: nothing is written over it"
    if proposal.recovery not in (RECOVERED, RECOVERING):
        return Code.INVALID_REQUEST, f"there is no recovery state {proposal.recovery}"
    if (proposal.recovery == RECOVERING and len(isr) > 1) or (
        state.recovery == RECOVERED and proposal.recovery == RECOVERING
    ):
        return Code.INVALID_REQUEST, "a recovering leader is alone"
    serving = cluster.serving_ids(topic, proposal.partition, cluster.live_ids) - cluster.leaving_ids
    ineligible = [
        broker_id
        for broker_id, epoch in proposal.isr
        if (registered := cluster.brokers.get(broker_id)) is None
        or registered.epoch != epoch
        or (broker_id not in serving and broker_id not in state.isr)
    ]
    if ineligible:
        return Code.INELIGIBLE_REPLICA, f"not registered like this: {ineligible}"
    return None


def _see_states(context: Context, facts: Sequence[StateFact]) -> Iterator[Decided]:
    cluster = context.cluster
    for fact in facts:
        known = cluster.partition(fact.topic, fact.partition)
        if known is None or fact.zxid < known.zxid or cluster.duties.is_leaving(fact.topic):
            continue  # of a topic not believed or on its way out, or older than our own write
        trouble = fact.trouble_in(cluster.controller_epoch)
        if trouble is not None:
            if cluster.unreadable.get((fact.topic, fact.partition), ("", 0))[0] != trouble:
                yield 0, Unreadable(fact.topic, fact.partition, trouble, fact.zxid)
            continue
        yield from _adopt(context, fact, known)


def _adopt(context: Context, fact: StateFact, known: Partition) -> Iterator[Decided]:
    if fact.state is not None:
        is_mended = (fact.topic, fact.partition) in context.cluster.unreadable
        is_as_before = (fact.version, fact.state) == (known.version, known.state)
        if is_mended or not is_as_before:
            # of a topic that was malformed when the term loaded: an earlier term's, as all that was found then
            is_of_before = known.state is None and fact.state.controller_epoch < context.epoch
            is_found = is_as_before or is_of_before
            why = Reason(Cause.FOUND, "found") if is_found else Reason(Cause.STATE_WRITTEN, "written by somebody else")
            yield 0, StateFound(fact.topic, fact.partition, fact.state, fact.version, fact.zxid, why.words, why.cause)
        seen = Partition(known.replicas, known.adding, known.removing, fact.state, fact.version, fact.zxid)
    elif known.state is not None:
        # Made again from belief with a higher leader epoch: brokers would refuse to start over from 0.
        yield 0, StateLost(fact.topic, fact.partition, fact.zxid)
        change = made_again(context, fact.topic, fact.partition, known, known.state, context.cluster.live_ids)
        if change is not None:
            yield 1, change
        return
    else:
        if (fact.topic, fact.partition) in context.cluster.unreadable:
            yield 0, StateLost(fact.topic, fact.partition, fact.zxid)
        seen = known
    live_brokers = LiveBrokers(context.cluster.live_ids)
    change = repair_partition(
        context, fact.topic, fact.partition, seen, live_brokers, Reason(Cause.REPAIRED, "repaired")
    )
    if change is not None:
        yield 1, change
