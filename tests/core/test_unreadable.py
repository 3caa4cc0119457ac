"""Malformed nodes: no write replaces them, and a state that is read late is the one that an earlier term left.

All of these were found by `make simulate`, once it wrote nonsense into topics and states.
"""

from __future__ import annotations

from controller.core.changes.cluster import StateDecided
from controller.core.codes import Code
from controller.core.events import AlterPartitionAsked, DeletionsSeen, StatesSeen, TimePassed, TopicsSeen
from tests.builders import (
    EPOCH,
    LOADED,
    a_broker,
    a_cluster,
    a_leadership,
    a_proposal,
    a_state_fact,
    a_topic_fact,
    settle,
    topic_id_of,
)

LATER = LOADED + 20
EARLIER = a_leadership(1, [1], 5, controller_epoch=EPOCH - 1)


def test_a_leader_that_asks_about_a_state_of_nonsense_is_refused_and_nothing_is_written_over_it() -> None:
    """It asked again and again, each time in vain, until the whole topic was left out for the term."""
    cluster = a_cluster(orders=[[1, 2, 3]], live=(1, 2, 3), states={"orders-0": a_leadership(1, [1, 2], 5)})
    settle(cluster, StatesSeen([a_state_fact("orders", 0, None, trouble="not a state")]))
    asked = AlterPartitionAsked(1, a_broker(1).epoch, [a_proposal(cluster, "orders", 0, 1, 2, 3)])
    settled = settle(cluster, asked)
    [refused] = settled.refusals
    assert refused.code is Code.INVALID_UPDATE_VERSION
    assert not any(isinstance(change, StateDecided) for change in settled.changes)


def test_a_state_that_a_term_reads_late_carries_the_epoch_of_its_decider() -> None:
    """Its line said that the reader had decided it."""
    cluster = a_cluster(orders=[[1]], live=(1,), states={"orders-0": None})
    [line] = settle(cluster, StatesSeen([a_state_fact("orders", 0, EARLIER, 3)])).lines
    assert (line.reason, line.controller_epoch, line.version) == ("found", EPOCH - 1, 3)


def test_a_state_that_a_term_reads_late_is_told_to_its_replicas() -> None:
    """All that they were told of in this term they led and followed, and this was not among it."""
    cluster = a_cluster(orders=[[1, 2]], live=(1, 2), states={"orders-0": None})
    [telling] = settle(cluster, StatesSeen([a_state_fact("orders", 0, EARLIER, 3)])).tellings
    key = ("orders", topic_id_of("orders"))
    assert {broker_id: rows[key][0].state for broker_id, rows in telling.leaderships.items()} == {
        1: EARLIER,
        2: EARLIER,
    }
    assert telling.metadata[key][0].version == 3


def test_a_state_of_another_writer_in_this_term_is_not_found() -> None:
    cluster = a_cluster(orders=[[1]], live=(1,), states={"orders-0": None})
    state = a_leadership(1, [1], 5, controller_epoch=EPOCH)
    [line] = settle(cluster, StatesSeen([a_state_fact("orders", 0, state, 3)])).lines
    assert (line.reason, line.controller_epoch) == ("written by somebody else", EPOCH)


def test_a_topic_that_makes_sense_too_late_is_deleted_and_not_led_first() -> None:
    """An earlier term had erased its states; they were made anew, with leader epochs from 0 (SEED=440364574)."""
    cluster = a_cluster(live=(1, 2))
    settle(cluster, TopicsSeen([a_topic_fact("orders", [1, 2], trouble="nonsense", zxid=LATER)], LATER))
    settle(cluster, DeletionsSeen({"orders": False}, LATER))
    assert cluster.duties.deletions["orders"].waits_for == "its znode is malformed"
    settled = settle(cluster, TopicsSeen([a_topic_fact("orders", [1, 2], version=1, zxid=LATER + 1)], LATER + 1))
    assert not any(isinstance(change, StateDecided) for change in settled.changes)
    assert cluster.duties.is_leaving("orders")
    [telling] = settle(cluster, TimePassed()).tellings
    assert sorted(telling.stops) == [1, 2]


def test_an_unchanged_state_that_may_be_read_again_was_written_by_no_other() -> None:
    """Its line said so, and gave it the epoch of the term that read it."""
    cluster = a_cluster(orders=[[1, 2]], live=(1, 2), states={"orders-0": EARLIER})
    known = cluster.topics["orders"].partitions[0]
    settle(cluster, StatesSeen([a_state_fact("orders", 0, None, trouble="this controller may not read it")]))
    [line] = settle(cluster, StatesSeen([a_state_fact("orders", 0, EARLIER, known.version)])).lines
    assert (line.reason, line.controller_epoch, line.version) == ("found", EPOCH - 1, known.version)
    assert not cluster.unreadable
