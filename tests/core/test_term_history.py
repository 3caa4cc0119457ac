"""The record of terms: each holder writes its own and closes its predecessor's; the last 200 are kept."""

from __future__ import annotations

import msgspec

from controller.core.belief.cluster import Cluster
from controller.core.changes.duties import TermRecorded
from controller.core.decide.term_history import TERMS_KEPT
from controller.core.events import TermTold
from controller.core.formats import TermZnode
from controller.core.project.znodes import TERMS
from tests.builders import EPOCH, Settled, a_cluster, settle, zookeeper_of
from tests.core.model_zookeeper import ModelZooKeeper
from tests.support.znodes import generic

TOLD = TermTold(5_000, {"claimed": 1.5, "told": 20.0}, why_before="session gone")


def knowing(**records: TermZnode) -> tuple[Cluster, ModelZooKeeper]:
    """A cluster that loaded these terms: `knowing(e6=TermZnode(...))`."""
    cluster = a_cluster()
    zookeeper = zookeeper_of(cluster)
    for name, record in records.items():
        cluster.duties.terms[int(name[1:])] = record
        zookeeper.put(f"{TERMS}/{name[1:]}", msgspec.json.encode(record))
    return cluster, zookeeper


def recorded(settled: Settled) -> dict[int, TermZnode | None]:
    return {one.controller_epoch: one.record for one in settled.of(TermRecorded)}


def test_the_first_term_of_all_writes_its_own_record_with_its_phases() -> None:
    cluster, zookeeper = knowing()
    settle(cluster, TOLD, zookeeper)
    assert zookeeper.children(TERMS) == [str(EPOCH)]
    assert generic(zookeeper.nodes[f"{TERMS}/{EPOCH}"].data) == {
        "broker_id": 1, "from_ms": 5_000, "to_ms": None, "why": None, "phases": {"claimed": 1.5, "told": 20.0},
    }  # fmt: skip
    assert set(cluster.duties.terms) == {EPOCH}


def test_a_predecessor_that_said_nothing_of_its_end_is_closed_with_the_reason() -> None:
    cluster, zookeeper = knowing(e6=TermZnode(2, 1_000, phases={"told": 9.0}))
    settled = settle(cluster, TOLD, zookeeper)
    assert recorded(settled)[6] == TermZnode(2, 1_000, 5_000, "session gone", {"told": 9.0})
    assert generic(zookeeper.nodes[f"{TERMS}/6"].data)["why"] == "session gone"


def test_a_predecessor_that_said_so_itself_is_left_as_it_is() -> None:
    cluster, zookeeper = knowing(e6=TermZnode(2, 1_000, 3_000, "resigned"))
    assert set(recorded(settle(cluster, TOLD, zookeeper))) == {EPOCH}


def test_each_term_before_that_did_not_write_its_end_is_closed_as_the_next_one_began() -> None:
    """Those that were noted by their claims, and wrote nothing themselves, were in between."""
    cluster, zookeeper = knowing(e2=TermZnode(2, 100, phases={"told": 9.0}), e4=TermZnode(3, 1_000))
    closed = recorded(settle(cluster, TOLD, zookeeper))
    assert closed == {
        2: TermZnode(2, 100, 1_000, "unknown", {"told": 9.0}),
        4: TermZnode(3, 1_000, 5_000, "session gone"),
        EPOCH: TermZnode(1, 5_000, phases=dict(TOLD.phases)),
    }


def test_told_again_later_the_record_has_the_later_phases_and_the_reason_before_stays() -> None:
    cluster, zookeeper = knowing(e6=TermZnode(2, 1_000))
    settle(cluster, TOLD, zookeeper)
    settled = settle(cluster, TermTold(5_000, {"told": 20.0, "acknowledged": 33.0}), zookeeper)
    assert recorded(settled) == {EPOCH: TermZnode(1, 5_000, phases={"told": 20.0, "acknowledged": 33.0})}
    assert cluster.duties.terms[6].why == "session gone"
    assert settled.conflicts == []


def test_our_own_end_is_written_down_when_it_is_known() -> None:
    cluster, zookeeper = knowing()
    settle(cluster, TermTold(5_000, {}, to_ms=9_000, why="resigned"), zookeeper)
    assert cluster.duties.terms[EPOCH] == TermZnode(1, 5_000, 9_000, "resigned")


def test_a_phase_that_is_told_after_the_end_takes_the_end_not_back() -> None:
    cluster, zookeeper = knowing()
    settle(cluster, TermTold(5_000, {}, to_ms=9_000, why="resigned"), zookeeper)
    settle(cluster, TermTold(5_000, {"acknowledged": 33.0}), zookeeper)
    assert cluster.duties.terms[EPOCH] == TermZnode(1, 5_000, 9_000, "resigned", {"acknowledged": 33.0})


def test_no_more_than_200_terms_are_kept_and_the_oldest_go() -> None:
    cluster, zookeeper = knowing(**{f"e{epoch}": TermZnode(2, epoch, epoch, "deposed") for epoch in range(1, 251)})
    cluster.controller_epoch = 251
    settled = settle(cluster, TOLD, zookeeper)
    kept = range(251 - TERMS_KEPT + 1, 252)
    assert sorted(map(int, zookeeper.children(TERMS))) == sorted(cluster.duties.terms) == list(kept)
    assert len(recorded(settled)) == 1 + 51
    assert recorded(settle(cluster, TOLD, zookeeper)).keys() == {251}


def test_what_is_too_long_ago_is_not_closed_any_more() -> None:
    cluster, zookeeper = knowing(**{f"e{epoch}": TermZnode(2, epoch) for epoch in range(1, 251)})
    cluster.controller_epoch = 251
    assert settle(cluster, TOLD, zookeeper).conflicts == []
    assert sorted(map(int, zookeeper.children(TERMS))) == list(range(251 - TERMS_KEPT + 1, 252))


def test_a_term_makes_no_line_and_tells_no_broker() -> None:
    cluster, zookeeper = knowing(e6=TermZnode(2, 1_000))
    settled = settle(cluster, TOLD, zookeeper)
    assert settled.lines == []
    assert all(telling.is_empty for telling in settled.tellings)
