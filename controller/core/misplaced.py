"""A replica placed on a controller that is no broker: the live broker that hosts least gets it instead."""

from __future__ import annotations

from controller.core.cluster import Cluster
from controller.core.model import Assignment


def without_controller(cluster: Cluster, wanted: Assignment) -> Assignment | None:
    """The assignment with somebody else in the controller's place, or nobody if all have a replica already; None if
    there is nothing to change."""
    own_id = cluster.controller_id
    if not cluster.is_dedicated or own_id not in wanted.replicas:
        return None
    free = cluster.live_ids - cluster.leaving_ids - set(wanted.replicas)
    load = {one: sum(map(len, cluster.hosted.get(one, {}).values())) for one in free}
    instead = [min(free, key=lambda one: (load[one], one))] if free else []
    at = wanted.replicas.index(own_id)
    replicas = (*wanted.replicas[:at], *instead, *wanted.replicas[at + 1 :])
    return Assignment(replicas) if replicas else None
