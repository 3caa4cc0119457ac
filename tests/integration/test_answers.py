"""The answers of our own brokers' logs after a kill and a freeze, against ZooKeeper's own transaction log."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from sparkjobs.input.files import Zones, find_logs, survey
from sparkjobs.rules.rules import Answers
from sparkjobs.tables.silver import SilverEvent
from tests.integration.cluster import Cluster, now_ms
from tests.spark.plain import answers_for
from tests.spark.reading import ingest
from tests.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.slow]

_STATE = re.compile(r".*/brokers/topics/([^/]+)/partitions/(\d+)/state")
State = tuple[str, int, int, int, int, tuple[int, ...]]


def written_states(cluster: Cluster) -> list[State]:
    """Topic, partition, version, leader, leader epoch, ISR: of every write, out of the transaction log."""
    found = []
    for one in cluster.order.operations():
        match = _STATE.fullmatch(one.path or "")
        if match is not None and one.kind in ("create", "set") and one.version is not None:
            state = json.loads(one.data or b"")
            isr = tuple(state["isr"])
            found.append((match[1], int(match[2]), one.version, state["leader"], state["leader_epoch"], isr))
    return found


def read_logs(cluster: Cluster) -> tuple[list[SilverEvent], Answers]:
    logs = [str(broker.folder / "state-change.log") for broker in cluster.brokers.values()]
    events = ingest(survey(find_logs(logs), "ours", Zones())).events
    return events, answers_for(events)


@pytest.mark.long
async def test_the_logs_of_our_own_cluster_agree_with_zookeepers_record(cluster: Cluster) -> None:
    await cluster.start()
    assert await cluster.controller.create_topic("orders", partitions=6) == 201
    await cluster.whole()
    old, dead = cluster.order.claims()[-1], cluster.controller
    led = {key for key, state in (await cluster.states()).items() if state.leader == dead.broker_id}
    killed_at_ms = now_ms()
    await dead.kill()
    await cluster.claim_after(old)
    await until(cluster.is_agreed, "the survivors were told")
    await cluster.start(dead.broker_id)
    await cluster.whole()
    second = cluster.order.claims()[-1]
    frozen = cluster.controller
    frozen.freeze()
    await cluster.claim_after(second)
    await until(cluster.is_agreed, "the others were told")
    frozen.thaw()
    await cluster.whole()

    truth = written_states(cluster)

    def lines() -> Counter[tuple[str | None, int | None, int | None]]:
        said = {(e.topic_id, e.partition, e.version) for e in read_logs(cluster)[0] if e.event == "partition_changed"}
        return Counter(said)

    await until(lambda: len(lines()) >= len(truth), "every write has its line")
    _, answers = read_logs(cluster)
    timeline = [(s.topic, s.partition, s.version, s.leader, s.leader_epoch, s.isr) for s in answers["isr_timeline"]]  # type: ignore[attr-defined]
    assert sorted(timeline) == sorted(truth)
    claims = [(claim.controller_epoch, claim.broker_id) for claim in cluster.order.claims()]
    assert [(t.controller_epoch, t.broker) for t in answers["controller_tenures"]] == claims  # type: ignore[attr-defined]
    assert {f.broker for f in answers["failovers"]} >= {dead.broker_id, frozen.broker_id}  # type: ignore[attr-defined]
    first = [o for o in answers["partition_outages"] if o.first_broker == dead.broker_id]  # type: ignore[attr-defined]
    assert {(o.topic, o.partition) for o in first} >= led  # type: ignore[attr-defined]
    for outage in first[: len(led)]:
        assert outage.start_lo_ms - 60_000 <= killed_at_ms <= outage.end_ms  # type: ignore[attr-defined]
    assert answers["illegal_transitions"] == answers["unclean_elections"] == []
    assert not [one for one in answers["partition_outages"] if one.open]  # type: ignore[attr-defined]
