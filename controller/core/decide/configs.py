"""Configuration as the controller uses it: believed as read, changed on request, and the effects of a change.

Only one value means something to a controller: whether a leader may be elected that was not in sync. Where that was
just allowed, partitions without a leader are tried again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from controller.core.belief.cluster import Cluster
from controller.core.belief.duties import CLUSTER_DEFAULT, UNCLEAN
from controller.core.causes import Cause, Failure, Reason
from controller.core.changes.cluster import NotificationRead, Refused
from controller.core.changes.duties import (
    ConfigFound,
    ConfigWritten,
    ElectionsFailed,
    config_subject,
    topic_subject,
)
from controller.core.codes import Code
from controller.core.decide.repair import LiveBrokers, repair_partition
from controller.core.decide.topic_configs import trouble_with
from controller.core.decide.topics import MAX_CONFIG_CHARACTERS
from controller.core.decide.work import Context, Decided, Work, work_of
from controller.core.events import ConfigAsked, ConfigsSeen
from controller.core.model import NO_LEADER

_ALLOWED: Final = Reason(Cause.UNCLEAN_ALLOWED, "unclean election was allowed")


def on_configs_seen(context: Context, event: ConfigsSeen) -> Iterator[Work]:
    """Believe the configurations (step 0); elect leaders where they now allow an unclean one (step 1)."""
    duties = context.cluster.duties
    for kind, seen, known in (
        ("topics", event.topics, duties.topic_configs),
        ("brokers", event.brokers, duties.broker_configs),
    ):
        for entity, values in sorted(seen.items()):
            if dict(known.get(entity, {})) != dict(values):
                yield work_of(0, ConfigFound(kind, entity, values))
    for topic in _newly_unclean(context.cluster, event.topics, event.brokers):
        yield Work(topic_subject(topic), partial(_lead_uncleanly, context, topic))
    for path, version in event.expired.items():
        change = NotificationRead(path, version)
        yield work_of(0, change)


def on_config_asked(context: Context, event: ConfigAsked) -> Iterator[Work]:
    """Written and announced (step 0); the effects (step 1) are as if it had been read."""
    subject = config_subject(event.kind, event.entity)
    duties = context.cluster.duties
    before = (duties.topic_configs if event.kind == "topics" else duties.broker_configs).get(event.entity, {})
    merged = {**before, **event.values}
    after = {key: value for key, value in merged.items() if value is not None}
    refusal = _refusal(context.cluster, event, after)
    if refusal is not None:
        yield work_of(0, Refused(subject, *refusal))
        return
    if after == dict(before):
        yield work_of(0, Refused(subject, Code.NONE, "stands already"))
        return
    yield work_of(0, ConfigWritten(event.kind, event.entity, after))
    seen: dict[str, Mapping[str, str]] = {event.entity: after}
    topics, brokers = (seen, {}) if event.kind == "topics" else ({}, seen)
    for topic in _newly_unclean(context.cluster, topics, brokers):
        yield Work(topic_subject(topic), partial(_lead_uncleanly, context, topic))


def is_known(cluster: Cluster, event: ConfigAsked) -> bool:
    """Whether there can be a configuration of what is asked for."""
    if event.kind == "topics":
        return event.entity in cluster.topics and not cluster.duties.is_leaving(event.entity)
    return event.entity == CLUSTER_DEFAULT or event.entity.isdecimal()


def _refusal(cluster: Cluster, event: ConfigAsked, after: Mapping[str, str]) -> tuple[Code, str] | None:
    if not is_known(cluster, event):
        if event.kind == "topics":
            return Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {event.entity}"
        return Code.INVALID_REQUEST, f"{event.entity} is no broker id"
    if sum(len(key) + len(value) for key, value in after.items()) > MAX_CONFIG_CHARACTERS:
        return Code.INVALID_CONFIG, f"a configuration has at most {MAX_CONFIG_CHARACTERS} characters"
    if event.kind == "topics":
        given = {key: value for key, value in event.values.items() if value is not None}
        if (trouble := trouble_with(given)) is not None:
            return Code.INVALID_CONFIG, trouble
    unclean = event.values.get(UNCLEAN)
    if unclean is not None and unclean.strip().lower() not in ("true", "false"):
        return Code.INVALID_CONFIG, f"{UNCLEAN} is true or false, not {unclean}"
    return None


def _newly_unclean(
    cluster: Cluster, topics: Mapping[str, Mapping[str, str]], brokers: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Topics for which an unclean election becomes allowed by these overrides."""
    duties = cluster.duties
    default = brokers.get(CLUSTER_DEFAULT, duties.broker_configs.get(CLUSTER_DEFAULT, {}))
    concerned = cluster.topics if CLUSTER_DEFAULT in brokers else [name for name in topics if name in cluster.topics]
    allowed = []
    for name in concerned:
        own = topics.get(name, duties.topic_configs.get(name, {}))
        value = own.get(UNCLEAN, default.get(UNCLEAN))
        is_allowed = cluster.unclean_default if value is None else value.strip().lower() == "true"
        if is_allowed and not cluster.is_unclean_allowed(name):
            allowed.append(name)
    return sorted(allowed)


def _lead_uncleanly(context: Context, topic: str) -> Iterator[Decided]:
    cluster = context.cluster
    if cluster.duties.is_leaving(topic):
        return
    for number, known in cluster.topics[topic].partitions.items():
        if known.state is None or known.state.leader != NO_LEADER or (topic, number) in cluster.unreadable:
            continue
        live_brokers = LiveBrokers(cluster.live_ids)
        change = repair_partition(context, topic, number, known, live_brokers, _ALLOWED, allow_unclean=True)
        if change is not None:
            yield 1, change
        else:
            yield 1, ElectionsFailed(topic, Failure.NOBODY_CAN_LEAD, 1 << number, _ALLOWED.cause)
