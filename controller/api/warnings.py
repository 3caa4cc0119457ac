"""The tasks that are left undone though the cluster serves: named, so that an operator can act. Pure.

Facts of belief (subjects left out, writes that are refused, znodes that are malformed, deletions that wait) are known
to the active controller alone. Every process knows of drains, as told, and of its own log.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from controller.api.counts import Summary
from controller.api.ports import ClusterView, ControllerHandle
from controller.core.belief.cluster import Cluster
from controller.core.belief.id_searches import claims_said
from controller.core.codes import Code, name_of
from controller.core.decide.broker_refusals import STALE, STOP_REPLICA
from controller.core.decide.topic_ids import holders_of
from controller.core.model import BrokerRefusal
from controller.core.project.refusals import sentence_for
from controller.core.project.znodes import topic_path
from controller.loop.unreadable_nodes import shown

#: of each kind so many are named, and the others counted
NAMED_MAX: Final = 5
REFUSALS_NAMED: Final = 3


def warnings_of(view: ClusterView, handle: ControllerHandle, summary: Summary) -> list[str]:
    """As sentences, the gravest kind first."""
    found: list[str] = []
    cluster = handle.cluster
    if handle.seat_trouble is not None:
        found.append(handle.seat_trouble)
    if view.is_led_by_kafka:
        found.append(
            f"broker {view.controller_id}, one of Kafka's own, is the controller, and this process stands by: what it "
            "shows is what ZooKeeper says; `klamm takeover` claims the seat"
        )
    term = handle.term
    if cluster is not None and term is not None:
        found += _in_belief(cluster)
        unread = [f"{shown(path)} is left out: {trouble}" for path, trouble in sorted(term.unread.items())]
        found += _named(unread, "znodes are left out")
        foreign_brokers = [
            f"broker {one} is of the other kind: it is assigned nothing" for one in sorted(term.foreign_brokers)
        ]
        found += _named(foreign_brokers, "brokers are of the other kind")
    if lost := handle.lines_lost_lately:
        found.append(f"{_counted(lost, 'line')} of the state-change log could not be written in the last minutes")
    draining = [broker.id for broker in view.brokers if broker.state == "draining" and summary.leaders[broker.id]]
    found += _named([f"broker {one} is draining: it still leads {summary.leaders[one]}" for one in draining], "drains")
    return found


def _in_belief(cluster: Cluster) -> list[str]:
    parked = [f"{subject} is left out: {trouble}" for subject, trouble in sorted(cluster.parked.items())]
    refused = [f"{one.subject}: {sentence_for(one)}" for _, one in sorted(cluster.refused.items())]
    unreadable = [
        f"the znode of {shown(name if number is None else f'{name}-{number}')} is unreadable: {trouble}"
        for key in sorted(cluster.unreadable, key=lambda key: (key[0], -1 if key[1] is None else key[1]))
        for (name, number), (trouble, _) in ((key, cluster.unreadable[key]),)
    ]
    disputed = [
        f"the id of topic {name} is disputed, and nobody is told of it: {claims_said(claims)}; write the right one "
        f"into its znode (topic_id in {topic_path(name)}), or delete the topic"
        for name, claims in sorted(cluster.duties.ids.disputes.items())
    ]
    nobody = [
        f"topic {name} has no id, and none of its brokers {sorted(holders)} is live to be asked for it: start one, or "
        f"write the id into its znode (topic_id in {topic_path(name)})"
        for name in sorted(cluster.duties.ids.open)
        for holders in (holders_of(cluster.topics[name]),)
        if not holders & cluster.live_ids
    ]
    waiting = [
        f"the deletion of {name} waits: {deletion.waits_for}"
        for name, deletion in sorted(cluster.duties.deletions.items())
        if deletion.waits_for is not None
    ]
    return [
        *_named(parked, "subjects are left out"),
        *_named([_refused_by(cluster, broker_id) for broker_id in sorted(cluster.duties.refusals)], "brokers refuse"),
        *_named(refused, "writes are refused by ZooKeeper"),
        *_named(unreadable, "znodes are unreadable"),
        *_named(disputed, "topic ids are disputed"),
        *_named(nobody, "topics have no id"),
        *_named(waiting, "deletions wait"),
    ]


def _refused_by(cluster: Cluster, broker_id: int) -> str:
    """Returns a few of the partitions that a broker refuses, and a remedy for the first of them."""
    refusals, count = cluster.duties.refusals[broker_id], cluster.duties.refused_by(broker_id)
    every = ((topic, number, one) for topic, numbers in refusals.items() for number, one in numbers.items())
    few = list(islice(every, REFUSALS_NAMED))
    said = [
        f"{f'{topic}-{number}' if topic else 'the metadata'} ({one.request}: {name_of(one.code)})"
        for topic, number, one in few
    ]
    rest = f" and {count - len(few)} more" if count > len(few) else ""
    return f"broker {broker_id} refuses what it is told of {', '.join(said)}{rest}: {_remedy_for(few[0][2])}"


def _remedy_for(one: BrokerRefusal) -> str:
    if one.request == STOP_REPLICA:
        return "the replica stays on its disk; once its log says why no more, move the replica there and away again"
    if one.code in STALE:
        return "it knows a higher leader epoch; one above is written and told, and if this lasts, restart the broker"
    if one.code == Code.INCONSISTENT_TOPIC_ID:
        return (
            "its disk has a topic of that name with another id (in partition.metadata): if that is the right one, "
            "write it into the topic's znode (topic_id); otherwise move that directory away and restart the broker"
        )
    if one.code == Code.UNKNOWN_TOPIC_OR_PARTITION:
        return "it finds itself not among the replicas; see who changed the topic's znode"
    return "it is told again every minute; its log says why"


def _named(troubles: Sequence[str], others: str) -> list[str]:
    rest = len(troubles) - NAMED_MAX
    return [*troubles[:NAMED_MAX], *([f"{rest} more {others}"] if rest > 0 else [])]


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
