"""Replies to requests, from what was decided and what stands."""

from __future__ import annotations

from collections.abc import Sequence

from controller import wire
from controller.core.changes import Committed, Refused, StateDecided
from controller.core.cluster import Cluster
from controller.core.codes import Code
from controller.core.events import AlterPartitionAsked, Event
from controller.core.isr import IsrVerdict, verdicts_for
from controller.core.model import NO_LEADER
from controller.inbox import Reply


def reply_for(cluster: Cluster, event: Event, committed: Sequence[Committed]) -> Reply:
    """The answer to a request whose every change stands or was refused."""
    refused = [one.change for one in committed if isinstance(one.change, Refused)]
    if isinstance(event, AlterPartitionAsked):
        return _alter_partition_reply(cluster, event, refused, committed)
    if refused:
        return Reply(refused[0].code, refused[0].detail)
    return Reply()


def _alter_partition_reply(
    cluster: Cluster, event: AlterPartitionAsked, refused: Sequence[Refused], committed: Sequence[Committed]
) -> Reply:
    whole = next((one for one in refused if one.partition < 0), None)
    if whole is not None:
        return Reply(whole.code, whole.detail, body=wire.AlterPartitionAnswer(error_code=whole.code))
    stood = [one.change for one in committed if isinstance(one.change, StateDecided)]
    topics: dict[str, list[wire.AlteredRow]] = {}
    for verdict in verdicts_for(cluster, event, refused, stood):
        topics.setdefault(verdict.topic_id, []).append(_row(verdict))
    answer = wire.AlterPartitionAnswer(topics=[wire.AlteredTopic(topic_id, rows) for topic_id, rows in topics.items()])
    return Reply(Code.NONE, body=answer)


def _row(verdict: IsrVerdict) -> wire.AlteredRow:
    state = verdict.state
    if state is None:
        return wire.AlteredRow(verdict.partition, verdict.code, NO_LEADER, -1, (), verdict.version, 0)
    return wire.AlteredRow(
        verdict.partition, verdict.code, state.leader, state.leader_epoch, state.isr, verdict.version, state.recovery
    )
