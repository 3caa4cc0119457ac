"""The specification: every clause is needed, TLC's report is read, and traces go as far as they are right."""

from __future__ import annotations

import re

import pytest

from brokerstub.logs import Logs
from controller.core.states import PARTITION_MOVES, REPLICA_MOVES
from tests.faults.simulate.run import run
from tests.recordings import RECORDINGS
from tests.spec.following import follow
from tests.spec.models import BROKEN, INVARIANTS, LIVENESS, STEPS, Broken, actions, clauses, config_of, seats
from tests.spec.recorded import history_of
from tests.spec.records import watching
from tests.spec.simulated import schedule
from tests.spec.tlc import HERE, TlcError, check, report_of
from tests.spec.traces import Trace, of_partitions, of_seat, tla


def test_every_clause_and_every_invariant_has_a_broken_specification() -> None:
    for module in ("Seat", "Partitions", "Records"):
        broken = [one for one in BROKEN if one.module == module]
        assert {one.clause for one in broken} == clauses(module)
        judged = {*INVARIANTS[module], *STEPS[module], *LIVENESS[module]}
        assert {one.fails for one in broken} == judged


def test_the_actions_are_the_next_events() -> None:
    assert {"Claim", "SomeDraw", "Expire"} < actions("Seat")
    assert {"Elect", "Grant", "SomeHeard"} < actions("Partitions")
    assert {"Produce", "Cut", "HearSome"} < actions("Records")
    assert "VersionAfter" not in actions("Seat")


def test_the_moves_of_both_state_machines_are_those_of_the_tables() -> None:
    text = (HERE / "Partitions.tla").read_text(encoding="utf-8")
    for name, table in (("PartitionMoves", PARTITION_MOVES), ("ReplicaMoves", REPLICA_MOVES)):
        found = re.search(rf"^{name} == \{{(.*?)\}}", text, re.DOTALL | re.MULTILINE)
        assert found is not None
        ours = {tuple(re.sub("Partition|ReplicaDeletion|Replica", "", one.value) for one in move) for move in table}
        assert set(re.findall(r'<<"(\w+)", "(\w+)">>', found[1])) == ours


def test_a_report_without_an_end_is_none() -> None:
    with pytest.raises(TlcError):
        report_of("Error: Parsing or semantic analysis failed.")
    with pytest.raises(TlcError):
        report_of("10 states generated, 5 distinct states found, 3 states left on queue.")


def test_a_search_that_was_ended_says_what_it_left() -> None:
    said = (
        "Model checking completed. No error has been found.\n"
        "10 states generated, 5 distinct states found, 3 states left on queue.\n"
    )
    with pytest.raises(TlcError):
        report_of(said)
    assert report_of(said, may_stop=True).left == 3


def test_a_report_names_the_failures() -> None:
    said = "Error: Invariant A is violated.\n10 states generated, 5 distinct states found, 3 states left on queue.\n"
    assert report_of(said).violated == "A"


def test_values_are_written_as_tla_writes_them() -> None:
    assert tla(("Wish", frozenset({2, 1}), {2: 3, 1: 0}, True)) == '<<"Wish",{1,2},(1 :> 0 @@ 2 :> 3),TRUE>>'


@pytest.mark.java
@pytest.mark.maven
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_processes_and_one_failure_keep_every_invariant_of_the_seat() -> None:
    report = check("Seat", config_of(seats(2, 1, 1)))
    assert report.violated is None
    assert min(report.taken["Claim"], report.taken["DeleteEpoch"]) > 0


@pytest.mark.java
@pytest.mark.maven
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("broken", [one for one in BROKEN if one.known], ids=lambda one: one.clause)
def test_bugs_that_others_had_come_back_without_the_clause_that_prevents_them(broken: Broken) -> None:
    report = check(broken.module, config_of(broken.model, without=broken.without, checked=[broken.fails]), covers=False)
    assert report.violated == broken.fails


@pytest.mark.java
@pytest.mark.maven
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_simulated_schedule_is_followed_to_its_end_and_a_step_that_is_wrong_no_further() -> None:
    right = schedule("3")
    assert all(one.is_accepted for one in follow("Seat", [right.seat]))
    trace = right.partitions[0]
    at = next(number for number, step in enumerate(trace.steps) if step.startswith('<<"State"'))
    twice = Trace("twice", [*trace.steps[: at + 1], trace.steps[at]], [*trace.where[: at + 1], "once more"])
    followed = follow("Partitions", [*right.partitions, twice])
    assert all(one.is_accepted for one in followed[:-1])
    assert followed[-1].reached == at + 1


def test_watching_records_changes_nothing_of_a_schedule() -> None:
    before = Logs.append
    with watching() as scribe:
        watched = run("1", records=True)
    assert Logs.append is before
    assert watched.trace == run("1", records=True).trace
    steps = [step for trace in scribe.traces("seed 1", watched.history) for step in trace.steps]
    assert {"Row", "Hear", "Produce", "Ask", "Fetch", "Rely", "Rest"} <= {step[3:].partition('"')[0] for step in steps}


def test_a_schedule_without_records_has_no_traces_of_them() -> None:
    with watching() as scribe:
        outcome = run("1", records=False)
    assert outcome.history.broker_requests
    assert scribe.traces("seed 1", outcome.history) == []


@pytest.mark.java
@pytest.mark.maven
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_records_are_followed_to_their_end_and_a_watermark_that_is_too_high_no_further() -> None:
    right = schedule("1").records
    assert right
    trace = right[0]
    at = next(number for number, step in enumerate(trace.steps) if step.startswith('<<"Produce"'))
    before, _, mark = trace.steps[at].removesuffix(">>").rpartition(",")
    early = Trace("early", [*trace.steps[:at], f"{before},{int(mark) + 1}>>"], trace.where[: at + 1])
    followed = follow("Records", [*right, early])
    assert all(one.is_accepted for one in followed[:-1])
    assert followed[-1].reached == at


@pytest.mark.java
@pytest.mark.maven
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_real_kafka_cluster_is_followed_to_its_end() -> None:
    history = history_of(RECORDINGS[0])
    assert all(one.is_accepted for one in follow("Seat", [of_seat("kafka", history)], kafka=True))
    assert all(one.is_accepted for one in follow("Partitions", of_partitions("kafka", history), kafka=True))
