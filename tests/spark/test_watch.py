"""Outages concluded as lines come in are, after each handful of lines, those of a batch over all lines so far."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparkjobs.input.files import Zones, find_logs, survey
from sparkjobs.rules import outages
from sparkjobs.rules.stream_state import Revision, StreamState, ToldOutages
from sparkjobs.tables.gold import Outage
from sparkjobs.tables.silver import SilverEvent
from tests.spark import plain as local
from tests.spark.bundles import write
from tests.spark.reading import ingest
from tests.spark.simulate import Simulation

DATA = Path(__file__).parents[1] / "data"


class Watching:
    """As the stream does it, with Spark's part done in this process."""

    def __init__(self, cluster: str) -> None:
        self.cluster, self.watch, self.told = cluster, StreamState(cluster), ToldOutages()
        self.so_far: list[SilverEvent] = []
        self.revisions: list[Revision] = []
        self.concluded: set[tuple[str, int]] = set()

    def see(self, events: Sequence[SilverEvent]) -> None:
        self.so_far += events
        new = local.sort_events(self.cluster, events)
        about = [e for e in events if e.event in outages.EVENTS and e.topic is not None and e.partition is not None]
        fresh = self.watch.take(new.tallies, new.of_cluster, about)
        kinds = outages.EVENTS
        self.watch.recall(e for e in self.so_far if (e.topic, e.partition) in fresh and e.event in kinds)
        before, since = self.watch.moments()
        self.watch.hear(before, dict(new.voices(before)))
        self.watch.hear(since, dict(local.sort_events(self.cluster, self.so_far).voices(since)))
        found = self.watch.conclude()
        self.concluded = set(found)
        for partition, its in found.items():
            self.revisions += self.told.tell(partition, its)

    def standing(self) -> list[Outage]:
        """The outages that a reader of every revision believes."""
        last = {one.outage_id: one for one in self.revisions}
        return local.sorted_rows([one.outage for one in last.values() if not one.retracted])  # type: ignore[return-value]


def without_places(rows: Iterable[Any]) -> list[Any]:
    return local.sorted_rows(replace(row, file_id="", line_no=0) for row in rows)


def events_in(folder: Path) -> list[SilverEvent]:
    return ingest(survey(find_logs([str(folder)]), "c", Zones())).events


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), level=st.sampled_from(("TRACE", "INFO")), pieces=st.integers(2, 12))
def test_in_any_order_and_any_pieces_the_revisions_are_those_of_a_batch(
    tmp_path_factory: pytest.TempPathFactory, seed: int, level: str, pieces: int
) -> None:
    folder, draw = tmp_path_factory.mktemp("logs"), random.Random(seed)
    write(Simulation(seed).run(faults=6), folder, level)
    events = events_in(folder)
    if draw.random() < 0.5:
        draw.shuffle(events)
    watching, size = Watching("c"), len(events) // pieces + 1
    for start in range(0, len(events), size):
        watching.see(events[start : start + size])
        assert without_places(watching.standing()) == without_places(
            local.answers_for(watching.so_far)["partition_outages"]
        )
    assume(watching.standing())  # faults may have left every partition led
    for outage_id in {one.outage_id for one in watching.revisions}:
        assert next(one.rev for one in watching.revisions if one.outage_id == outage_id) == 1
    again = len(watching.revisions)
    watching.see(events[:50])
    assert len(watching.revisions) == again, "a line that comes again changes nothing"


@pytest.mark.slow
@pytest.mark.parametrize("recording", ["kafka-3.9.1", "kafka-3.9.1-info"])
def test_file_after_file_of_a_real_cluster_ends_as_a_batch(recording: str) -> None:
    watching = Watching("c")
    files = survey(find_logs([str(DATA / recording)]), "c", Zones())
    events = ingest(files).events
    for file in files:
        watching.see([event for event in events if event.file_id == file.file_id])
    assert without_places(watching.standing()) == without_places(local.answers_for(events)["partition_outages"])


def test_only_touched_partitions_are_concluded_again(tmp_path: Path) -> None:
    simulation = Simulation(3, partitions=40).run(faults=4)
    write(simulation, tmp_path, "TRACE")
    events = sorted(events_in(tmp_path), key=lambda event: event.ts_utc)
    watched = {(e.topic, e.partition) for e in events if e.event in outages.EVENTS and outages.may_begin(e)}
    of_watched = (e for e in reversed(events) if e.event == "partition_changed" and (e.topic, e.partition) in watched)
    watching, last = Watching("c"), next(of_watched)
    early = [event for event in events if event is not last]
    watching.see(early)
    assert watching.concluded == watched
    assert 10 < len(watched) < 40
    watching.see([event for event in early if event.event == "other"][-10:])
    assert watching.concluded == set()
    watching.see([last])
    assert watching.concluded == {(last.topic, last.partition)}


def test_of_partitions_that_were_never_in_trouble_no_line_is_kept(tmp_path: Path) -> None:
    simulation = Simulation(3, partitions=40).run(faults=1)
    write(simulation, tmp_path, "TRACE")
    events, watching = events_in(tmp_path), Watching("c")
    watching.see(events)
    about = [e for e in events if e.event in outages.EVENTS and e.topic is not None]
    troubled = {(e.topic, e.partition) for e in about if outages.may_begin(e)}
    assert 0 < len(troubled) < 40
    assert watching.watch.kept == sum((e.topic, e.partition) in troubled for e in about) < len(about)


def test_an_outage_that_turns_out_to_be_none_is_retracted_and_may_come_back() -> None:
    one = outage_of(1_000)
    told = ToldOutages()
    assert [(r.rev, r.retracted) for r in told.tell(("t", 0), [one])] == [(1, False)]
    assert told.tell(("t", 0), [one]) == []
    assert [(r.rev, r.retracted) for r in told.tell(("t", 0), [])] == [(2, True)]
    assert told.tell(("t", 0), []) == []
    assert [(r.rev, r.retracted) for r in told.tell(("t", 0), [one])] == [(3, False)]
    assert [(r.rev, r.outage.start_ms, r.retracted) for r in told.tell_all([outage_of(2_000)])] == [
        (1, 2_000, False),
        (4, 1_000, True),
    ]


def outage_of(start_ms: int) -> Outage:
    return Outage(
        cluster="c",
        topic="t",
        partition=0,
        start_ms=start_ms,
        start_lo_ms=start_ms,
        start_hi_ms=start_ms,
        evidence="exact",
        cause="unknown",
        election_attempts=0,
        unclean=False,
        open=True,
        file_id="f",
        line_no=1,
    )
