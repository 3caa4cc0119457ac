"""A broker's belief about its own replicas, code by code."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import msgspec
import pytest

from brokerstub.log_dirs import ReplicaLog
from brokerstub.multipart_lists import pieces
from brokerstub.replicas import Replica, Replicas, RequestEffects, SetAside
from controller.core.codes import Code
from controller.wire.bodies import (
    AlteredRow,
    PartitionRow,
    StopRow,
    TopicStops,
)
from tests.brokerstub.support import row, topic

KEY = ("id-orders", 0)


@pytest.fixture
def replicas() -> Replicas:
    numbers = count(1)
    return Replicas(1, {}, lambda: f"log-{next(numbers)}")


def keys(on_disk: list[Replica]) -> list[tuple[str, int]]:
    return [replica.key for replica in on_disk]


def codes(taken: RequestEffects) -> list[int]:
    return [refusal.error_code for refusal in taken.refused]


def take(replicas: Replicas, told: PartitionRow, topic_id: str = "id-orders") -> list[int]:
    return codes(replicas.take_rows([topic(told, topic_id=topic_id)]))


def test_a_new_leadership_makes_the_replica_and_notes_the_epoch(replicas: Replicas) -> None:
    taken = replicas.take_rows([topic(row(epoch=3))])
    assert taken.written == [Replica("orders", "id-orders", 0, "log-1", (3,))]
    assert [(change.before, change.after) for change in taken.changes] == [(None, row(epoch=3))]
    assert replicas.led(KEY) == row(epoch=3)
    taken = replicas.take_rows([topic(row(leader=2, epoch=5))])
    assert taken.written == [Replica("orders", "id-orders", 0, "log-1", (3, 5))]
    assert replicas.led(KEY) is None


def test_an_older_leader_epoch_is_refused_with_11(replicas: Replicas) -> None:
    take(replicas, row(epoch=3))
    assert take(replicas, row(leader=2, epoch=2, version=9)) == [Code.STALE_CONTROLLER_EPOCH]
    assert replicas.told[KEY] == row(epoch=3)


def test_the_same_leadership_again_is_a_success_without_effect(replicas: Replicas) -> None:
    take(replicas, row(epoch=3, version=5))
    for version in (5, 4):
        taken = replicas.take_rows([topic(row(epoch=3, version=version))])
        assert (taken.refused, taken.changes, taken.written) == ([], [], [])
    assert replicas.told[KEY].version == 5


def test_a_higher_version_of_the_same_leadership_is_adopted(replicas: Replicas) -> None:
    take(replicas, row(epoch=3, version=5))
    taken = replicas.take_rows([topic(row(epoch=3, version=6, isr=(1, 2)))])
    assert (taken.refused, taken.written, replicas.told[KEY].isr) == ([], [], (1, 2))
    assert not taken.changes[0].is_new_leadership


def test_a_partition_of_others_is_refused_with_3(replicas: Replicas) -> None:
    assert take(replicas, row(leader=2, replicas=(2, 3), isr=(2, 3))) == [Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert (replicas.told, replicas.held) == ({}, {})


def test_another_topic_id_under_the_same_name_is_refused_with_103(replicas: Replicas) -> None:
    take(replicas, row())
    assert take(replicas, row(epoch=9), "id-new") == [Code.INCONSISTENT_TOPIC_ID]
    assert take(replicas, row(partition=1), "id-new") == []


def test_only_the_refused_are_listed(replicas: Replicas) -> None:
    take(replicas, row(1, epoch=3))
    taken = replicas.take_rows([topic(row(0), row(1, epoch=1), row(2, replicas=(2,)), row(3))])
    assert [(one.partition, one.error_code) for one in taken.refused] == [(1, 11), (2, 3)]


def test_without_a_leader_a_partition_is_held_and_followed_nowhere(replicas: Replicas) -> None:
    assert take(replicas, row(leader=-1, epoch=1)) == []
    assert replicas.led(KEY) is None
    assert replicas.held[KEY].leader_epochs == (1,)


def test_a_replica_not_in_a_full_list_is_set_aside_with_reason_and_time(replicas: Replicas) -> None:
    replicas.take_rows([topic(row(0), row(1))])
    held = replicas.held[KEY]
    taken = replicas.take_list([[topic(row(1))]], "not in the list", 1_000)
    assert [(change.key, change.after) for change in taken.changes] == [(KEY, None)]
    aside = msgspec.structs.replace(held, stray=SetAside("not in the list", 1_000))
    assert (taken.written, replicas.strays, taken.deleted) == ([aside], {KEY: aside}, [])
    assert (replicas.led(KEY), list(replicas.held)) == (None, [("id-orders", 1)])
    assert replicas.take_list([[topic(row(1))]], "again", 2_000).written == []


def test_a_stray_that_is_wanted_again_under_its_own_topic_id_is_none_any_more(replicas: Replicas) -> None:
    replicas.take_rows([topic(row(0))])
    replicas.take_list([])
    taken = replicas.take_rows([topic(row(0, epoch=4))])
    assert taken.written == [Replica("orders", "id-orders", 0, "log-1", (0, 4))]
    assert (list(replicas.held), replicas.strays) == ([KEY], {})


def test_a_stray_does_not_stand_in_the_way_of_a_topic_made_anew_which_gets_a_fresh_replica(replicas: Replicas) -> None:
    take(replicas, row(), "id-old")
    new = topic(row(epoch=0), topic_id="id-new")
    replicas.take_list([[new]])
    assert codes(replicas.take_rows([new])) == []
    assert (list(replicas.strays), replicas.held["id-new", 0].log_id) == ([("id-old", 0)], "log-2")


def test_a_stray_is_deleted_when_its_topic_is(replicas: Replicas) -> None:
    take(replicas, row())
    replicas.take_list([])
    taken = replicas.take_stops([TopicStops("orders", "id-orders", [StopRow(0, -2, True)])])
    assert (keys(taken.deleted), replicas.strays) == ([KEY], {})


def test_a_leader_epoch_on_disk_is_not_gone_back_from(replicas: Replicas) -> None:
    """A broker forgets its instructions with a stop, or with the incarnation. A late request must not revive them."""
    take(replicas, row(epoch=3))
    replicas.take_stops([TopicStops("orders", "id-orders", [StopRow(0, 3, False)])])
    assert take(replicas, row(epoch=2)) == [Code.STALE_CONTROLLER_EPOCH]
    replicas.begin()
    assert take(replicas, row(epoch=2)) == [Code.STALE_CONTROLLER_EPOCH]
    assert take(replicas, row(epoch=3)) == []


def test_a_new_incarnation_was_told_nothing_and_keeps_its_disk(replicas: Replicas) -> None:
    take(replicas, row(epoch=3))
    replicas.begin()
    assert replicas.led(KEY) is None
    taken = replicas.take_rows([topic(row(epoch=3))])
    assert (taken.written, taken.changes[0].is_new_leadership) == ([], True)
    assert replicas.held[KEY].log_id == "log-1"


@pytest.mark.parametrize(
    ("epoch", "code"), [(2, Code.FENCED_LEADER_EPOCH), (3, None), (4, None), (-1, None), (-2, None)]
)
def test_a_replica_is_stopped_unless_the_leader_epoch_is_older(
    replicas: Replicas, epoch: int, code: Code | None
) -> None:
    take(replicas, row(epoch=3))
    taken = replicas.take_stops([TopicStops("orders", "id-orders", [StopRow(0, epoch, True)])])
    if code is None:
        assert (taken.refused, keys(taken.deleted), replicas.held, replicas.told) == ([], [KEY], {}, {})
        assert take(replicas, row(), "id-new") == []
    else:
        assert (codes(taken), taken.deleted, replicas.told[KEY]) == ([code], [], row(epoch=3))


@pytest.mark.parametrize("stopped_at", [4, -2, -1])
def test_a_deleted_replica_is_not_brought_back_by_a_request_that_comes_twice(
    replicas: Replicas, stopped_at: int
) -> None:
    take(replicas, row(epoch=3))
    replicas.take_stops([TopicStops("orders", "id-orders", [StopRow(0, stopped_at, True)])])
    if stopped_at == -1:
        assert take(replicas, row(epoch=2)) == [Code.STALE_CONTROLLER_EPOCH]
    else:
        assert take(replicas, row(epoch=3)) == [Code.STALE_CONTROLLER_EPOCH]
    assert (replicas.held, replicas.told) == ({}, {})
    again = [] if stopped_at != -2 else [Code.STALE_CONTROLLER_EPOCH]  # assigned again; a topic id never is
    assert take(replicas, row(epoch=4)) == again


def test_stopping_without_deleting_keeps_the_disk(replicas: Replicas) -> None:
    take(replicas, row())
    taken = replicas.take_stops([TopicStops("orders", "id-orders", [StopRow(0, 0, False), StopRow(7, 0, False)])])
    assert (taken.refused, taken.deleted, replicas.told) == ([], [], {})
    assert KEY in replicas.held


def test_a_replica_left_on_disk_is_deleted_though_no_request_told_of_it(replicas: Replicas) -> None:
    take(replicas, row())
    replicas.begin()
    taken = replicas.take_stops([TopicStops("orders", "id-orders", [StopRow(0, -2, True)])])
    assert (keys(taken.deleted), replicas.held) == ([KEY], {})


@pytest.mark.parametrize(
    ("epoch", "version", "is_adopted"), [(3, 6, True), (3, 5, False), (2, 9, False), (4, 9, False)]
)
def test_a_standing_state_is_adopted_if_it_is_ours_and_newer(
    replicas: Replicas, epoch: int, version: int, is_adopted: bool
) -> None:
    take(replicas, row(epoch=3, version=5))
    change = replicas.take_altered("id-orders", AlteredRow(0, 95, 1, epoch, (1,), version, 0))
    assert (change is not None) == is_adopted
    assert replicas.told[KEY].isr == ((1,) if is_adopted else (1, 2, 3))


def test_a_leader_hears_its_granted_isr_again_with_all_others(replicas: Replicas) -> None:
    """Its answer overtook the leadership that it was about: the leader made no request any more, and two followers
    stayed out of the ISR for good (found by `make simulate SEED=440363765`)."""
    take(replicas, row(epoch=3, version=5))
    granted = row(epoch=3, isr=(1,), version=6)
    [change] = replicas.take_metadata([("id-orders", granted), ("id-orders", row(1, 2, epoch=3, version=6))])
    assert (change.key, replicas.told[KEY].isr, replicas.take_metadata([("id-orders", granted)])) == (KEY, (1,), [])


def test_rows_are_cut_into_pieces_in_order() -> None:
    bodies = [[topic(row(0), row(1), row(2)), topic(row(0), topic_id="b")], [topic(row(3), row(4))]]
    cut = [[(one.topic_id, each.partition) for one in piece for each in one.partitions] for piece in pieces(bodies, 2)]
    a = "id-orders"
    assert cut == [[(a, 0), (a, 1)], [(a, 2), ("b", 0)], [(a, 3), (a, 4)]]


def test_replicas_are_found_again_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "replicas.jsonl"
    log, replicas = ReplicaLog(path), Replicas(1, {}, lambda: "drawn")
    taken = replicas.take_rows([topic(row(0), row(1), row(2))])
    log.write(taken.written, [], replicas.held.values)
    taken = replicas.take_rows([topic(row(0, epoch=1))])
    log.write(taken.written, [], replicas.held.values)
    taken = replicas.take_stops([TopicStops("orders", "id-orders", [StopRow(1, -2, True)])])
    log.write([], taken.deleted, replicas.held.values)
    log.write(replicas.take_list([[topic(row(0))]], "gone", 7).written, [], replicas.held.values)
    log.close()
    again = ReplicaLog(path)
    assert again.found == replicas.held | replicas.strays
    assert (again.found[KEY].leader_epochs, again.found["id-orders", 2].stray) == ((0, 1), SetAside("gone", 7))
    again.close()


def test_a_torn_last_line_is_left_out_and_never_merged_with_the_next(tmp_path: Path) -> None:
    path = tmp_path / "replicas.jsonl"
    log, replicas = ReplicaLog(path), Replicas(1, {}, lambda: "drawn")
    log.write(replicas.take_rows([topic(row(0), row(1))]).written, [], replicas.held.values)
    log.close()
    path.write_bytes(path.read_bytes()[:-5])
    log = ReplicaLog(path)
    assert list(log.found) == [KEY]
    log.write(replicas.take_rows([topic(row(2))]).written, [], replicas.held.values)
    log.close()
    log = ReplicaLog(path)
    assert [partition for _, partition in log.found] == [0, 2]
    log.close()


def test_the_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "replicas.jsonl"
    log, replicas = ReplicaLog(path, lines_added_max=10), Replicas(1, {}, lambda: "drawn")
    for epoch in range(100):
        log.write(replicas.take_rows([topic(row(epoch=epoch))]).written, [], replicas.held.values)
    assert len(path.read_bytes().splitlines()) <= 11
    log.close()
    log = ReplicaLog(path)
    assert log.found == replicas.held
    log.close()
