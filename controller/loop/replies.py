"""Replies to requests, from the decision and the changes that stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.core.belief.cluster import Cluster
from controller.core.changes.cluster import Committed, Refused, StateDecided
from controller.core.changes.duties import ProducerIdsGranted, broker_subject
from controller.core.codes import Code
from controller.core.decide.drains import remaining
from controller.core.decide.isr import IsrVerdict, verdicts_for
from controller.core.events import (
    AlterPartitionAsked,
    CreateTopicAsked,
    DrainAsked,
    ElectAsked,
    Event,
    ForgetBrokerAsked,
    GrowTopicAsked,
    ProducerIdsAsked,
    ReassignAsked,
)
from controller.core.model import NO_LEADER
from controller.loop.inbox import (
    ChangeReply,
    IsrReply,
    OutcomesReply,
    PartitionOutcome,
    ProducerIdsReply,
    Reply,
    ShutdownReply,
)
from controller.wire import bodies


def reply_for(cluster: Cluster, event: Event, committed: Sequence[Committed]) -> Reply:
    """Returns the answer to a request whose every change stands or was refused."""
    refused = [one.change for one in committed if isinstance(one.change, Refused)]
    decided = [one.change for one in committed if isinstance(one.change, StateDecided)]
    match event:
        case AlterPartitionAsked():
            return _alter_partition_reply(cluster, event, refused, decided)
        case DrainAsked(is_shutdown=True):
            return _shutdown_reply(cluster, event.broker_id, refused)
        case ElectAsked(partitions=partitions):
            asked = [(one.topic, one.partition) for one in decided] if partitions is None else partitions
            return OutcomesReply(outcomes=_outcomes(cluster, asked, refused))
        case ReassignAsked(targets=targets):
            return OutcomesReply(outcomes=_outcomes(cluster, list(targets), refused))
        case ProducerIdsAsked() if not refused:
            granted = next(one.change for one in committed if isinstance(one.change, ProducerIdsGranted))
            return ProducerIdsReply(start=granted.start, size=granted.size)
        case CreateTopicAsked() | GrowTopicAsked() | ForgetBrokerAsked() if not refused:
            return ChangeReply()
        case CreateTopicAsked() | GrowTopicAsked() | ForgetBrokerAsked() if refused[0].code is Code.NONE:
            return ChangeReply(detail=refused[0].detail, has_changed=False)
    if refused:
        return Reply(refused[0].code, refused[0].detail)
    return Reply()


def _outcomes(cluster: Cluster, asked: Sequence[tuple[str, int]], refused: Sequence[Refused]) -> list[PartitionOutcome]:
    """One for each partition asked about, and for each that was refused unasked."""
    whole = {one.subject: one for one in refused if one.partition < 0}
    # the basis of all of it: the node that asked for the same
    of_all = next((one for subject, one in whole.items() if not subject.startswith("topic ")), None)
    single: Mapping[tuple[str, int], Refused] = {
        (one.subject.removeprefix("topic "), one.partition): one for one in refused if one.partition >= 0
    }
    outcomes = []
    for topic, number in dict.fromkeys([*asked, *single]):
        refusal = single.get((topic, number)) or whole.get(f"topic {topic}") or of_all
        code, detail = (Code.NONE, "") if refusal is None else (refusal.code, refusal.detail)
        outcomes.append(PartitionOutcome(topic, number, code, detail))
    return outcomes


def _shutdown_reply(cluster: Cluster, broker_id: int, refused: Sequence[Refused]) -> Reply:
    if refused:
        return Reply(refused[0].code, refused[0].detail)
    left = [bodies.RemainingPartition(one.topic, one.partition) for one in remaining(cluster, broker_id)]
    return ShutdownReply(remaining=left)


def _alter_partition_reply(
    cluster: Cluster, event: AlterPartitionAsked, refused: Sequence[Refused], decided: Sequence[StateDecided]
) -> Reply:
    whole = next((one for one in refused if one.subject == broker_subject(event.broker_id)), None)
    if whole is not None:
        return Reply(whole.code, whole.detail)
    topics: dict[str, list[bodies.AlteredRow]] = {}
    for verdict in verdicts_for(cluster, event, refused, decided):
        topics.setdefault(verdict.topic_id, []).append(_row(verdict))
    return IsrReply(topics=[bodies.AlteredTopic(topic_id, rows) for topic_id, rows in topics.items()])


def _row(verdict: IsrVerdict) -> bodies.AlteredRow:
    state = verdict.state
    if state is None:
        return bodies.AlteredRow(verdict.partition, verdict.code, NO_LEADER, -1, (), verdict.version, 0)
    return bodies.AlteredRow(
        verdict.partition, verdict.code, state.leader, state.leader_epoch, state.isr, verdict.version, state.recovery
    )
