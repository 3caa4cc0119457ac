"""A replica placed on a controller that is no broker: the live broker that hosts least gets it instead.

Real brokers, which are told of the controller beside the brokers, place topics there that they create by themselves. It
never holds data: leader and ISR are the same with another broker in its place.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from controller.core.belief.cluster import Cluster
from controller.core.model import Assignment, Topic

MISPLACED = "placed on the controller, which is no broker"


def without_controller(cluster: Cluster, wanted: Assignment, live_ids: AbstractSet[int]) -> Assignment | None:
    """Returns the assignment with another broker in the controller's place, or none if all have a replica already; None
    if there is nothing to change."""
    own_id = cluster.controller_id
    if not cluster.is_dedicated or own_id not in wanted.replicas:
        return None
    free = live_ids - cluster.leaving_ids - set(wanted.replicas)
    load = {one: sum(map(len, cluster.hosted.get(one, {}).values())) for one in free}
    instead = [min(free, key=lambda one: (load[one], one))] if free else []
    at = wanted.replicas.index(own_id)
    replicas = (*wanted.replicas[:at], *instead, *wanted.replicas[at + 1 :])
    return Assignment(replicas) if replicas else None


def misplaced_in(cluster: Cluster, topic: Topic, live_ids: AbstractSet[int]) -> dict[int, Assignment]:
    """Returns partitions of a topic as they should be placed: also those that another controller has led since. A
    partition that is being reassigned is left to its reassignment."""
    mended = {}
    for number in cluster.hosted.get(cluster.controller_id, {}).get(topic.name, ()):
        one = topic.partitions[number]
        is_in_sync = one.state is not None and cluster.controller_id in one.state.isr
        wanted = without_controller(cluster, Assignment(one.replicas), live_ids)
        if wanted is not None and not (is_in_sync or one.adding or one.removing):
            mended[number] = wanted
    return mended
