"""Two real clusters under faults: every fault of their timelines is found in their logs, and has its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkjobs.report.findings import findings_for
from tests.spark.test_real_clusters import CLUSTERS, Known, known

pytestmark = pytest.mark.slow

Entry = dict[str, Any]


@pytest.fixture(params=CLUSTERS)
def cluster(request: pytest.FixtureRequest) -> Known:
    return known(request.param)


def a_broker_went(how: str) -> Callable[[Known, Entry], bool]:
    """It says so of this broker, after its last word and before the session time-out was over twice."""

    def is_found(cluster: Known, entry: Entry) -> bool:
        return any(
            (one.broker, one.how) == (entry["broker"], how)
            and entry["at_ms"] - 15_000 <= one.last_seen_ms <= entry["at_ms"] + 1_000
            and entry["at_ms"] < one.detected_ms <= entry["at_ms"] + 20_000
            for one in cluster.rows("failovers")
        )

    return is_found


def a_broker_returned(cluster: Known, entry: Entry) -> bool:
    """Of the loss before, in time to boot."""
    lost = [f for f in cluster.rows("failovers") if f.broker == entry["broker"] and f.last_seen_ms <= entry["at_ms"]]
    latest = max(lost, key=lambda one: one.last_seen_ms)
    if latest.returned_ms is None:  # back before a controller looked, or there was none to see it come
        return any(life.broker == entry["broker"] and life.from_ms >= entry["at_ms"] for life in lives(cluster))
    return bool(entry["at_ms"] <= latest.returned_ms <= entry["at_ms"] + 20_000)


def lives(cluster: Known) -> list[Any]:
    return [life for life in cluster.rows("broker_lives") if life.started]


def the_controller_was_deposed(cluster: Known, entry: Entry) -> bool:
    return any(
        (one.broker, one.why_ended) == (entry["controller"], "deposed") and abs(one.to_hi_ms - entry["at_ms"]) < 1_000
        for one in cluster.rows("controller_tenures")
    )


def zookeeper_went(cluster: Known, entry: Entry) -> bool:
    return any(0 <= one.from_ms - entry["at_ms"] < 1_000 for one in cluster.rows("zookeeper_outages"))


def zookeeper_returned(cluster: Known, entry: Entry) -> bool:
    return any(0 <= one.to_ms - entry["at_ms"] < 5_000 for one in cluster.rows("zookeeper_outages"))


def partitions_were_made(cluster: Known, entry: Entry) -> bool:
    """Of that topic, by that time; of one that grew up to that number."""
    topic = entry.get("name", entry.get("topic"))
    made = [
        one.partition
        for one in cluster.rows("leader_changes")
        if (one.topic, one.why) == (topic, "created") and -2_500 < one.at_ms - entry["at_ms"] < 5_000
    ]
    return bool(made) and max(made) == entry.get("to", max(made) + 1) - 1


def a_topic_was_deleted(cluster: Known, entry: Entry) -> bool:
    """The state of each of its partitions ends soon after."""
    ends = [s.to_ms for s in cluster.rows("isr_timeline") if s.topic == entry["topic"] and s.from_ms <= entry["at_ms"]]
    last = [end_ms for end_ms in ends if end_ms is not None and end_ms > entry["at_ms"]]
    return bool(last) and None not in ends and max(last) < entry["at_ms"] + 5_000


def partitions_moved(cluster: Known, entry: Entry) -> bool:
    """Also where only the order of replicas changed: the last write of an assignment adds and removes none."""
    return any(
        event.reason == "assignment written" and not event.added and not event.removed
        for event in cluster.events
        if event.topic == entry["topic"] and 0 <= event.ts_adj - entry["at_ms"] < 7_500
    )


def is_named(kind: str, in_words: str = "") -> Callable[[Known, Entry], bool]:
    """Among the findings, of that topic, when it was done."""

    def is_found(cluster: Known, entry: Entry) -> bool:
        topic = entry.get("name", entry.get("topic", ""))
        return any(
            finding.kind == kind
            and -3_000 < finding.at_ms - entry["at_ms"] < 7_500
            and topic in finding.words
            and in_words in finding.words
            for finding in findings_for(cluster.answers)
        )

    return is_found


def both(*are_found: Callable[[Known, Entry], bool]) -> Callable[[Known, Entry], bool]:
    return lambda cluster, entry: all(is_found(cluster, entry) for is_found in are_found)


def leaders_were_elected(cluster: Known, entry: Entry) -> bool:
    """Online already, another leader all the same."""
    return any(
        one.why == "election" and -3_000 < one.at_ms - entry["at_ms"] < 5_000 for one in cluster.rows("leader_changes")
    )


FOUND: dict[str, Callable[[Known, Entry], bool]] = {
    "kill": a_broker_went("crashed"),
    "sigterm": a_broker_went("stopped"),
    "freeze": a_broker_went("expired"),
    "start": a_broker_returned,
    "thaw": a_broker_returned,
    "depose": the_controller_was_deposed,
    "zk_kill": zookeeper_went,
    "zk_start": zookeeper_returned,
    "topic": both(partitions_were_made, is_named("creation")),
    "grow": both(partitions_were_made, is_named("growth")),
    "delete": both(a_topic_was_deleted, is_named("deletion")),
    "reassign": both(partitions_moved, is_named("reassignment")),
    "preferred": both(leaders_were_elected, is_named("preferred election", "by a tool")),
}
#: says when the recording began and ended, and that a sigterm was over
NO_FAULTS = {"up", "stopped", "end"}


def test_every_entry_of_the_timeline_is_found_and_named(cluster: Known) -> None:
    done = [entry for entry in cluster.timeline if entry["what"] not in NO_FAULTS]
    assert [entry for entry in done if not FOUND[entry["what"]](cluster, entry)] == []
    assert len(done) > 60


def test_no_fault_is_named_that_was_not_made(cluster: Known) -> None:
    def times(*whats: str) -> int:
        return sum(entry["what"] in whats for entry in cluster.timeline)

    assert len(cluster.rows("failovers")) == times("kill", "sigterm", "freeze")
    assert len([one for one in cluster.rows("controller_tenures") if one.why_ended == "deposed"]) == times("depose")
    assert len(cluster.rows("zookeeper_outages")) == times("zk_kill")
    assert cluster.rows("cluster_silences") == []
    asked = [finding for finding in findings_for(cluster.answers) if finding.kind in ("deletion", "reassignment")]
    assert len(asked) == times("delete", "reassign")
