"""Drawn clusters in the middle of duties: some brokers gone, some draining, some with bad directories, some suspected.

States are sound, and need not be the controller's own: some elections are still due.
"""

from __future__ import annotations

from hypothesis import strategies as st

from controller.core.belief.cluster import Cluster
from controller.core.belief.duties import UNCLEAN
from controller.core.changes.cluster import Change, Committed
from controller.core.changes.duties import ConfigFound, DrainGranted, FailedDirsFound
from controller.core.model import NO_LEADER, Leadership, Replicas
from tests.builders import a_broker, a_cluster, a_leadership

BROKER_IDS = range(1, 5)
PARTITIONS = 4

ids = st.sampled_from(BROKER_IDS)


@st.composite
def leaderships(draw: st.DrawFn, replicas: Replicas, live: frozenset[int]) -> Leadership | None:
    if live.isdisjoint(replicas) and draw(st.booleans()):
        return None  # never led: it had no candidate
    isr = draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True))
    return a_leadership(draw(st.sampled_from([*isr, NO_LEADER])), isr, draw(st.integers(0, 9)))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """One topic, `orders`."""
    assignment = [draw(st.lists(ids, min_size=1, max_size=3, unique=True)) for _ in range(PARTITIONS)]
    live = draw(st.frozensets(ids, min_size=1))
    states = {f"orders-{number}": draw(leaderships(tuple(one), live)) for number, one in enumerate(assignment)}
    cluster = a_cluster(live=live, orders=assignment, states=states, unclean=draw(st.booleans()))
    changes: list[Change] = []
    for broker_id in sorted(live):
        what = draw(st.sampled_from(["nothing"] * 3 + ["drains", "leaves", "failed", "suspect"]))
        if what in ("drains", "leaves"):
            changes.append(DrainGranted(broker_id, a_broker(broker_id).epoch, what == "leaves"))
        elif what == "failed":
            failed = frozenset(("orders", number) for number in draw(st.frozensets(st.integers(0, PARTITIONS - 1))))
            changes.append(FailedDirsFound(broker_id, a_broker(broker_id).epoch, failed))
        elif what == "suspect":
            cluster.duties.suspect_ids |= {broker_id}
    if (value := draw(st.sampled_from([None, None, "true", "false"]))) is not None:
        changes.append(ConfigFound("topics", "orders", {UNCLEAN: value}))
    cluster.apply(map(Committed, changes))
    return cluster
