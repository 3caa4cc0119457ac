"""What is left undone though the cluster serves: named, so that somebody can do something about it. Pure.

What only belief tells (subjects left out, znodes that make no sense, deletions that wait) the active controller alone
knows; every process knows of drains, as told, and of its own log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from controller.api.counts import Summary
from controller.api.view import ClusterView, ControllerDoor
from controller.core.cluster import Cluster

#: of each kind so many are named, and the others counted
NAMED_MAX: Final = 5


def troubles_of(view: ClusterView, door: ControllerDoor, summary: Summary) -> list[str]:
    """As sentences, the gravest kind first."""
    found: list[str] = []
    cluster = door.cluster
    if view.is_led_by_kafka:
        found.append(
            f"broker {view.controller_id}, one of Kafka's own, is the controller, and this process stands by: what it "
            "shows is what ZooKeeper says; `klamm takeover` claims the seat"
        )
    if cluster is not None and door.is_active:
        found += _in_belief(cluster)
        strangers = [f"broker {one} is of the other kind: it is assigned nothing" for one in sorted(door.strangers)]
        found += _named(strangers, "brokers are of the other kind")
    if lost := door.lines_lost_lately:
        found.append(f"{_counted(lost, 'line')} of the state-change log could not be written in the last minutes")
    draining = [broker.id for broker in view.brokers if broker.state == "draining" and summary.leaders[broker.id]]
    found += _named([f"broker {one} is draining: it still leads {summary.leaders[one]}" for one in draining], "drains")
    return found


def _in_belief(cluster: Cluster) -> list[str]:
    parked = [f"{subject} is left out: {trouble}" for subject, trouble in sorted(cluster.parked.items())]
    unreadable = [
        f"the znode of {name if number is None else f'{name}-{number}'} is unreadable: {cluster.unreadable[key][0]}"
        for key in sorted(cluster.unreadable, key=lambda key: (key[0], -1 if key[1] is None else key[1]))
        for name, number in (key,)
    ]
    waiting = [
        f"the deletion of {name} waits: {deletion.waits_for}"
        for name, deletion in sorted(cluster.duties.deletions.items())
        if deletion.waits_for is not None
    ]
    return [
        *_named(parked, "subjects are left out"),
        *_named(unreadable, "znodes are unreadable"),
        *_named(waiting, "deletions wait"),
    ]


def _named(troubles: Sequence[str], others: str) -> list[str]:
    rest = len(troubles) - NAMED_MAX
    return [*troubles[:NAMED_MAX], *([f"{rest} more {others}"] if rest > 0 else [])]


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
