"""Answers about two real Kafka clusters, from their logs alone, against ZooKeeper's own record of them."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from sparkjobs.input.files import Zones, find_logs, survey
from sparkjobs.rules.rules import Answers
from sparkjobs.tables.silver import SilverEvent
from tests.recordings import Recording
from tests.spark.plain import answers_for
from tests.spark.reading import ingest
from tests.spark.truth import Seat, Stood, at_moments, leaderless, seats_of, states_of

pytestmark = pytest.mark.slow

DATA = Path(__file__).parents[1] / "data"
#: the line follows the write by no more than this
LAG_MS = 250
CLUSTERS = ("kafka-3.9.1", "kafka-3.9.1-info")


class Known(NamedTuple):
    """One recording: the answers of its logs, ZooKeeper's record, and its faults."""

    events: list[SilverEvent]
    answers: Answers
    states: list[Stood]
    seats: list[Seat]
    timeline: list[dict[str, Any]]

    def rows(self, table: str) -> list[Any]:
        return list(self.answers[table])


@cache
def known(name: str) -> Known:
    silver = ingest(survey(find_logs([str(DATA / name)]), name, Zones()))
    recording = Recording(DATA / name)
    lines = (DATA / name / "timeline.jsonl").read_bytes().splitlines()
    timeline = [msgspec.json.decode(line) for line in lines]
    return Known(silver.events, answers_for(silver.events), states_of(recording), seats_of(recording), timeline)


@pytest.fixture(params=CLUSTERS)
def cluster(request: pytest.FixtureRequest) -> Known:
    return known(request.param)


def test_tenures_are_the_history_of_the_controller_znode(cluster: Known) -> None:
    tenures = cluster.rows("controller_tenures")
    assert [(t.controller_epoch, t.broker) for t in tenures] == [(s.controller_epoch, s.broker) for s in cluster.seats]
    for tenure, seat in zip(tenures, cluster.seats, strict=True):
        assert tenure.evidence == "exact"
        assert tenure.from_lo_ms <= seat.from_ms <= tenure.from_ms <= seat.from_ms + LAG_MS
        if seat.to_ms is None or tenure.to_ms is None:
            assert tenure is tenures[-1]
        else:
            assert tenure.to_lo_ms <= seat.to_ms <= tenure.to_hi_ms


def test_every_version_of_every_state_has_one_row_that_says_the_same(cluster: Known) -> None:
    rows: dict[tuple[str, int, int], list[Any]] = defaultdict(list)
    for row in cluster.rows("isr_timeline"):
        rows[row.topic, row.partition, row.version].append(row)
    assert sum(map(len, rows.values())) == len(cluster.states)
    for state in cluster.states:
        found = rows[state.topic, state.partition, state.version]
        row = min(found, key=lambda row: abs(row.from_ms - state.at_ms))
        assert (row.leader, row.leader_epoch, row.isr) == (state.leader, state.leader_epoch, state.isr)
        assert state.at_ms <= row.from_ms <= state.at_ms + LAG_MS
        assert row.from_lo_ms <= state.at_ms or row.version == 0


def test_at_every_moment_leader_and_isr_are_those_of_zookeeper_within_the_bounds(cluster: Known) -> None:
    """Between a write and the first line that knows it, the row before is still the answer."""
    compared = 0
    for row, stood in at_moments(cluster.rows("isr_timeline"), cluster.states, LAG_MS):
        assert (row.leader, row.isr, row.leader_epoch) == (stood.leader, stood.isr, stood.leader_epoch)
        compared += 1
    assert compared > 50_000


def test_every_stretch_without_a_leader_is_an_outage_unless_the_topic_was_being_deleted(cluster: Known) -> None:
    deleted = {one["topic"] for one in cluster.timeline if one["what"] == "delete"}
    outages: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for outage in cluster.rows("partition_outages"):
        outages[outage.topic, outage.partition].append(outage)
    count = 0
    for topic, partition, from_ms, to_ms in leaderless(cluster.states):
        if to_ms is None:
            assert topic in deleted
            continue
        covering = [o for o in outages[topic, partition] if o.start_lo_ms <= from_ms + LAG_MS and o.end_ms >= to_ms]
        assert covering, (topic, partition, from_ms, to_ms)
        assert min(o.end_ms for o in covering) <= to_ms + LAG_MS
        count += 1
    assert count >= 100
    assert not [o for o in cluster.rows("partition_outages") if o.open]


def test_no_outage_is_made_up(cluster: Known) -> None:
    """At its end, each outage is ended by a version of the state that ZooKeeper holds, with that leader and epoch."""
    held = {(s.topic, s.partition, s.leader, s.leader_epoch) for s in cluster.states}
    for outage in cluster.rows("partition_outages"):
        assert (outage.topic, outage.partition, outage.leader, outage.leader_epoch) in held
        assert outage.start_lo_ms <= outage.start_ms <= outage.start_hi_ms <= outage.end_ms


def test_every_reassignment_and_deletion_came_to_its_end(cluster: Known) -> None:
    assert cluster.rows("stuck_ops") == []


def test_nothing_illegal_is_seen_where_there_was_none(cluster: Known) -> None:
    assert cluster.rows("illegal_transitions") == []


def test_unclean_elections_are_those_that_zookeeper_shows(cluster: Known) -> None:
    """A leader that the version before did not have in its ISR. Reassignments bring theirs in first."""
    truth = set()
    before: dict[tuple[str, int], Stood] = {}
    for state in cluster.states:
        last = before.get((state.topic, state.partition))
        if last is not None and last.life == state.life and state.leader not in (-1, *last.isr):
            truth.add((state.topic, state.partition, state.leader, state.leader_epoch, last.isr))
        before[state.topic, state.partition] = state
    found = cluster.rows("unclean_elections")
    assert {(u.topic, u.partition, u.leader, u.leader_epoch, u.isr_before) for u in found} == truth
    hit = {(o.topic, o.partition, o.leader_epoch) for o in cluster.rows("partition_outages") if o.unclean}
    assert hit == {(topic, partition, epoch) for topic, partition, _, epoch, _ in truth}
