"""The simulation itself: the same seed is the same run, faults are felt, and a few schedules are clean."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import structlog

from controller.core.events import DrainAsked
from controller.core.operations import Delete
from tests.faults.checker.verdict import report
from tests.faults.hostile import BIG, DROP_ID
from tests.faults.simulate.client import SimClient
from tests.faults.simulate.harms import FAULTS
from tests.faults.simulate.hostile import HOSTILE
from tests.faults.simulate.run import run
from tests.faults.simulate.schedule import play_beside_a_hostile_tool, play_operations
from tests.faults.story import Stage, staged

ROOT = Path(__file__).parents[2]
SEEDS = range(40)
HOSTILE_SEEDS = range(12)


def trace_of(seed: str, hash_seed: str) -> str:
    command = [sys.executable, "-m", "tests.faults.simulate", "--seed", seed]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip().rpartition(" ")[2]


def test_the_same_seed_is_the_same_run_whatever_the_process() -> None:
    traces = {trace_of("11", "1"), trace_of("11", "2"), run("11").trace}
    assert len(traces) == 1
    assert run("12").trace not in traces


def test_a_play_that_fails_leaves_nothing_that_could_fail_the_next_test() -> None:
    async def play(stage: Stage) -> None:
        await stage.create("orders", {0: (1, 2, 3)})
        raise AssertionError("as when a scene does not hold")

    logging, told = structlog.get_config(), list[object]()
    before, sys.unraisablehook = sys.unraisablehook, told.append
    try:
        with pytest.raises(AssertionError, match="does not hold"):
            staged(play)
        gc.collect()  # a task that was left would say so now
    finally:
        sys.unraisablehook = before
    assert told == []
    assert structlog.get_config() == logging


@pytest.mark.parametrize("seed", SEEDS)
def test_a_schedule_breaks_no_rule(seed: int) -> None:
    outcome = run(str(seed))
    assert outcome.findings == [], "\n".join(report(outcome.history, outcome.findings))


@pytest.mark.parametrize("seed", HOSTILE_SEEDS)
def test_a_schedule_beside_a_hostile_tool_breaks_no_rule(seed: int) -> None:
    outcome = run(str(seed), play_beside_a_hostile_tool)
    assert outcome.findings == [], "\n".join(report(outcome.history, outcome.findings))


@pytest.mark.parametrize("seed", SEEDS[:20])
def test_operations_without_a_fault_break_no_rule_and_move_no_seat(seed: int) -> None:
    outcome = run(str(seed), play_operations)
    assert outcome.findings == [], "\n".join(report(outcome.history, outcome.findings))
    assert [one.kind for one in outcome.history.faults] == ["heal"]
    assert not any(
        one.kind == "delete" and one.path == "/controller" for c in outcome.history.commits for one in c.writes
    )


def test_schedules_hit_and_do_something() -> None:
    """A run whose faults missed, or that had no load, proves nothing."""
    histories = [run(str(seed)).history for seed in SEEDS]
    faults = Counter(one.kind for history in histories for one in history.faults)
    done = Counter(one.what for history in histories for one in history.calls if one.outcome == "ok")
    assert faults.keys() >= {"kill", "freeze", "expire", "cut", "lose answer", "double", "garble", "stop", "heal"}
    assert done.keys() >= {"create-topic", "delete-topic", "reassign", "drain", "elect"}
    terms = [sum(w.path == "/controller" and bool(w.data) for c in one.commits for w in c.writes) for one in histories]
    assert max(terms) > 2


def test_a_hostile_tool_does_all_that_it_can() -> None:
    histories = [run(str(seed), play_beside_a_hostile_tool).history for seed in HOSTILE_SEEDS]
    fell = {one.kind for history in histories for one in history.faults}
    assert fell >= HOSTILE.keys()
    assert any(one.subject == BIG and one.outcome == "ok" for history in histories for one in history.calls)


def test_a_tool_drops_no_id_that_only_a_lost_disk_knew() -> None:
    async def scene(stage: Stage) -> None:
        cluster = stage.cluster
        await stage.create("alpha", {0: (1, 2, 3)})
        await stage.create("beta", {0: (1, 2)})
        await stage.rest()
        stage.kill(3, loses_disk=True)
        assert [cluster.is_on_disks(one) for one in ("alpha", "beta")] == [False, True]
        stage.start(3)
        await stage.rest()
        assert cluster.is_on_disks("alpha")
        assert not cluster.misses_an_id()
        while not cluster.misses_an_id():
            HOSTILE[DROP_ID](stage.player, stage.player.random)
        kill_disk = FAULTS["kill with its disk"]
        while not {1, 2, 3} - cluster.members.keys():
            kill_disk(stage.player, stage.player.random)
        assert all(cluster.is_on_disks(one) for one in ("alpha", "beta"))
        await stage.rest()

    assert staged(scene).findings == []


def test_a_drain_whose_note_a_tool_removed_is_ended_too() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create("orders", {0: (1, 2, 3)})
        drained = stage.others[0]
        assert await stage.ask(DrainAsked(drained), what="drain", subject=str(drained)) == "ok"
        stage.cluster.zookeeper.commit(0, [Delete(f"/klamm/draining/{drained}", -1)])
        assert stage.player.drained_ids() == []
        await stage.player.finish()
        believed = stage.controller.handle.cluster
        assert believed is not None
        assert believed.duties.drains == {}
        await stage.rest()

    assert staged(scene).findings == []


def test_a_frozen_process_runs_nothing_and_goes_on_in_its_order() -> None:
    seen: list[tuple[str, bool]] = []

    async def scene(stage: Stage) -> None:
        await stage.create("orders", {0: (1, 2, 3)})
        member, told = stage.controller, len(stage.cluster.rpcs)
        member.process.freeze()
        stage.cluster.fault("freeze", member.broker_id, can_move_seat=True)
        await stage.pause(1.0)
        seen.append(("told", len(stage.cluster.rpcs) > told))
        member.process.thaw()
        await stage.rest()
        seen.append(("same seat", stage.controller is member))

    assert staged(scene).findings == []
    assert seen == [("told", False), ("same seat", True)]


def test_a_broker_that_is_stopped_hands_its_leaderships_over_and_goes() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create("orders", {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)})
        await stage.rest()
        leaving = stage.others[0]
        stage.cluster.fault("stop", leaving)
        stage.cluster.members[leaving].stop()
        await stage.until(stage.gone(leaving), "it is gone")
        drained = [stage.state("orders", number) for number in range(3)]
        assert all(one is not None and leaving not in one["isr"] and one["leader"] > 0 for one in drained)
        assert leaving not in stage.cluster.members
        await stage.rest()

    outcome = staged(scene)
    assert outcome.findings == []


def test_a_broker_that_a_bug_ends_closes_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(zk: SimClient, broker_id: int) -> None:
        if broker_id == 2:
            raise ZeroDivisionError("meant")
        await zk.lost()

    async def end_by_a_bug(stage: Stage) -> None:
        monkeypatch.setattr("tests.faults.simulate.member.end_when_unregistered", fail)
        stage.kill(2)
        await stage.until(stage.gone(2), "its session is over")
        session_ids = set(stage.cluster.zookeeper.sessions)
        stage.start(2)
        await stage.until(lambda: stage.cluster.bugs, "it ended")
        monkeypatch.undo()
        assert 2 not in stage.cluster.members
        assert not stage.has("/brokers/ids/2")
        assert set(stage.cluster.zookeeper.sessions) == session_ids

    outcome = staged(end_by_a_bug)
    assert [one.split(" ended: ")[0] for one in outcome.history.bugs] == ["broker 2"]
