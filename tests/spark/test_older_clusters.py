"""Answers about real clusters of older Kafka, 0.8 to 3.3, from their logs alone, against ZooKeeper's record and the
faults of their timelines (`tests/data/kafka-older/README.md`)."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from sparkjobs.commands.inputs import LogInputs
from sparkjobs.input.files import Zones, find_logs, survey
from sparkjobs.rules.rules import Answers
from tests.recordings import Recording
from tests.spark.plain import answers_for
from tests.spark.reading import silver_of
from tests.spark.truth import at_moments, leaderless, seats_of, states_of

pytestmark = pytest.mark.slow

DATA: Final = Path(__file__).parents[1] / "data" / "kafka-older"
#: the line follows the write by no more than this
LAG_MS: Final = 250
#: a session ends after 4 s, and a new controller has to look first
NOTICED_MS: Final = 8_000
HOW: Final = {"kill": "crashed", "freeze": "expired", "stop": "stopped"}
#: controllers before do not print the versions of the states that they write
BEFORE_VERSIONS: Final = ("0.8.", "0.9.", "0.10.", "0.11.")


class Known:
    """One recording: the answers of its logs, ZooKeeper's record, and its faults."""

    def __init__(self, folder: Path) -> None:
        silver = silver_of(LogInputs(survey(find_logs([str(folder)]), folder.name, Zones())))
        self.version, self.recording = folder.name, Recording(folder)
        self.quarantine = silver.ingested.quarantine
        self.answers: Answers = answers_for(silver.ingested.events)
        lines = (folder / "timeline.jsonl").read_bytes().splitlines()
        self.timeline: list[dict[str, Any]] = [msgspec.json.decode(line) for line in lines]
        self.states = states_of(self.recording)

    def rows(self, table: str) -> list[Any]:
        return list(self.answers[table])


@cache
def known(name: str) -> Known:
    return Known(DATA / name)


@pytest.fixture(params=sorted(one.name for one in DATA.iterdir() if one.is_dir()))
def cluster(request: pytest.FixtureRequest) -> Known:
    return known(request.param)


def test_every_line_is_understood(cluster: Known) -> None:
    assert cluster.quarantine == []


def test_tenures_are_the_history_of_the_controller_znode(cluster: Known) -> None:
    """Before 2.1 the epoch is written after the znode, so only their order is compared."""
    tenures, seats = cluster.rows("controller_tenures"), seats_of(cluster.recording)
    assert [(one.controller_epoch, one.broker) for one in tenures] == [
        (number, seat.broker) for number, seat in enumerate(seats, start=1)
    ]
    for tenure, seat in zip(tenures, seats, strict=True):
        assert tenure.evidence == "exact"
        assert tenure.from_lo_ms - LAG_MS <= seat.from_ms <= tenure.from_ms + LAG_MS
        if tenure is not tenures[-1]:
            assert tenure.to_lo_ms - LAG_MS <= seat.to_ms <= tenure.to_hi_ms + LAG_MS


def test_everything_that_was_done_to_a_broker_is_found_and_named(cluster: Known) -> None:
    failovers, count = cluster.rows("failovers"), 0
    for one, following in pairwise(cluster.timeline):
        if one["what"] in HOW:
            done_ms = following["at_ms"] if following["what"] == "stopped" else one["at_ms"]
            its = [row for row in failovers if (row.broker, row.how) == (one["broker"], HOW[one["what"]])]
            assert any(one["at_ms"] - LAG_MS <= row.detected_ms <= done_ms + NOTICED_MS for row in its), (one, its)
            count += 1
    assert count == 6


def test_every_stretch_without_a_leader_is_an_outage_unless_the_topic_was_being_deleted(cluster: Known) -> None:
    deleted = {one["topic"]: one["at_ms"] for one in cluster.timeline if one["what"] == "delete"}
    outages: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for row in cluster.rows("partition_outages"):
        outages[row.topic, row.partition].append(row)
    count = 0
    for topic, partition, from_ms, to_ms in leaderless(cluster.states):
        if from_ms >= deleted.get(topic, from_ms + 1):
            continue
        assert any(
            row.start_lo_ms <= from_ms + LAG_MS and (row.end_ms is None or row.end_ms >= (to_ms or from_ms))
            for row in outages[topic, partition]
        ), (topic, partition, from_ms, to_ms)
        count += 1
    assert count >= 3


def test_at_every_moment_the_leader_is_that_of_zookeeper(cluster: Known) -> None:
    compared = 0
    for row, stood in at_moments(cluster.rows("isr_timeline"), cluster.states, LAG_MS):
        assert (row.leader, row.leader_epoch) == (stood.leader, stood.leader_epoch), (row, stood)
        compared += 1
    assert (compared > 5_000) is not cluster.version.startswith(BEFORE_VERSIONS)


def test_nothing_is_made_up(cluster: Known) -> None:
    """Before 0.8.2 elections outside the ISR cannot be forbidden, and the last replica leaves it as it goes."""
    assert (cluster.rows("illegal_transitions"), cluster.rows("stuck_ops")) == ([], [])
    unclean = {
        (later.topic, later.partition, later.leader)
        for earlier, later in pairwise(sorted(cluster.states, key=lambda one: one[:4]))
        if earlier[:3] == later[:3] and later.leader not in (-1, *earlier.isr)
    }
    assert {(row.topic, row.partition, row.leader) for row in cluster.rows("unclean_elections")} == unclean
    held = {(one.topic, one.partition, one.leader) for one in cluster.states}
    for row in cluster.rows("partition_outages"):
        assert row.open or (row.topic, row.partition, row.leader) in held
