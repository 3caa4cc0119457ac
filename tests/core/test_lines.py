"""The lines of the state-change log: one per change that stands, with the fields that the interface promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from controller.core.belief.kept_states import Move, Moves
from controller.core.bitset import bits_of
from controller.core.causes import Cause
from controller.core.changes.cluster import Committed, SubjectParked
from controller.core.events import (
    AlterPartitionAsked,
    CreateTopicAsked,
    ElectAsked,
    StatesSeen,
    TermStarted,
    TopicsSeen,
)
from controller.core.project.lines import Line, lines_for, move_lines
from controller.core.states import PartitionStatus, ReplicaStatus
from tests.builders import (
    EPOCH,
    LOADED,
    STAMP,
    Settled,
    a_broker,
    a_cluster,
    a_leadership,
    a_proposal,
    a_state_fact,
    a_topic_fact,
    brokers,
    brokers_seen,
    knowing,
    settle,
    topic_id_of,
    zookeeper_of,
)

STAMPED = {"at_ms": 1_000, "cluster_id": "c", "controller_id": 1, "controller_epoch": EPOCH, "event_id": "7-1"}


def printed(settled: Settled) -> list[dict[str, Any]]:
    """Each line as the log has it, without the fields that its event stamps on it."""
    rows = [msgspec.json.decode(msgspec.json.encode(line)) for line in settled.lines]
    for row in rows:
        assert {key: row.pop(key) for key in STAMPED} == STAMPED
    return rows


def test_a_dead_leader_makes_a_line_for_the_broker_and_one_for_each_partition() -> None:
    assert printed(settle(a_cluster(orders=[[1, 2]]), brokers_seen(2, 3))) == [
        {
            "kind": "broker",
            "broker_id": 1,
            "broker_epoch": 11,
            "source": "live",
            "target": "gone",
            "reason": "registration gone",
            "cause": "broker_gone",
        },
        {
            "kind": "partition",
            "topic": "orders",
            "partition": 0,
            "source": "OnlinePartition",
            "target": "OnlinePartition",
            "reason": "brokers gone 1",
            "cause": "broker_gone",
            "leader": 2,
            "leader_epoch": 1,
            "isr": [2],
            "version": 1,
            "zxid": 111,
            "topic_id": topic_id_of("orders"),
        },
    ]


def test_a_version_of_zero_is_written_since_zero_is_real() -> None:
    settled = settle(a_cluster(), CreateTopicAsked("orders", assignment={0: (1, 2)}))
    topic, partition = printed(settled)
    assert (topic["kind"], topic["target"], topic["version"], topic["reason"]) == ("topic", "created", 0, "asked")
    assert (partition["partition"], partition["leader_epoch"], partition["version"]) == (0, 0, 0)
    assert (partition["source"], partition["target"]) == ("NewPartition", "OnlinePartition")
    assert partition["zxid"] > topic["zxid"]


def test_a_joined_a_bounced_and_a_changed_broker() -> None:
    settled = settle(a_cluster(), brokers_seen(a_broker(1, epoch=99), a_broker(2, port=9), 3, 4))
    assert [(row["broker_id"], row["source"], row["target"], row["reason"]) for row in printed(settled)] == [
        (1, "live", "gone", "bounced"),
        (1, "gone", "live", "bounced"),
        (4, "gone", "live", "joined"),
        (2, "live", "live", "registration changed"),
    ]


def test_an_isr_change_says_which_leader_asked() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    [row] = printed(settle(cluster, AlterPartitionAsked(1, 11, [a_proposal(cluster, "orders", 0, 1)])))
    assert (row["reason"], row["leader_epoch"], row["isr"], row["version"]) == ("leader 1 asked", 0, [1], 1)


def test_a_state_written_by_another_says_so() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    [row] = printed(settle(cluster, StatesSeen([a_state_fact("orders", 0, a_leadership(1, [1], 3), 8)])))
    assert (row["reason"], row["version"], row["zxid"]) == ("written by somebody else", 8, LOADED + 1)
    assert (row["target"], row["leader_epoch"]) == ("OnlinePartition", 3)


def found(live: tuple[int, ...]) -> Line:
    cluster = a_cluster(orders=[[1, 2]], live=())
    fact = a_state_fact("orders", 0, a_leadership(1, [1, 2], 4, controller_epoch=EPOCH - 1), 3)
    lines = settle(cluster, TermStarted(brokers(*live), LOADED, [fact]), zookeeper_of(cluster)).lines
    return next(line for line in lines if line.reason == "found")


def test_a_found_state_carries_the_epoch_of_the_controller_that_decided_it() -> None:
    line = found(live=(1, 2))
    assert (line.controller_epoch, line.version, line.leader_epoch) == (EPOCH - 1, 3, 4)


def test_a_found_state_led_by_a_live_broker_is_online() -> None:
    assert found(live=(1, 2)).target == "OnlinePartition"


def test_a_state_that_vanished_and_the_one_made_for_it() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    zookeeper = zookeeper_of(cluster)
    zookeeper.remove("/brokers/topics/orders/partitions/0")
    lost, made = printed(settle(cluster, zookeeper.states_seen(("orders", 0)), zookeeper))
    assert (lost["target"], lost["reason"]) == ("NonExistentPartition", "state znode is gone")
    assert (made["leader_epoch"], made["version"], made["reason"]) == (1, 0, "state znode had vanished")


def test_the_lines_of_a_topics_life() -> None:
    cluster = a_cluster(orders=[[1]])
    facts = [a_topic_fact("payments", [], trouble="nonsense"), a_topic_fact("users", [9], version=2)]
    settled = settle(cluster, TopicsSeen(facts, LOADED + 20, frozenset({"payments", "users"})))
    rows = [(row.get("topic"), row["target"], row.get("reason"), row.get("topic_id")) for row in printed(settled)]
    assert rows == [
        ("payments", "unreadable", "nonsense", None),
        ("users", "found", None, topic_id_of("users")),
        ("orders", "gone", "topic znode is gone", topic_id_of("orders")),
        (None, "no_replica_alive", "no assigned replica is alive", None),
    ]


def test_elections_that_fail_are_lines_grouped_by_why() -> None:
    topics = {f"t{number}": [[1, 2], [1], [1, 3]] for number in range(300)}
    states = {f"{name}-0": a_leadership(1, [1]) for name in topics}
    cluster = a_cluster(**topics, states=states)
    rows = [row for row in printed(settle(cluster, brokers_seen(2, 3))) if row["kind"] == "election"]
    said = {"target": "nobody_can_lead", "cause": "broker_gone", "part": 1}
    [row] = rows
    assert row.items() >= said.items()
    assert row["partitions"] == dict.fromkeys(topics, "0-1")
    asked = settle(cluster, ElectAsked(is_unclean=False, partitions=[("t0", 0), ("t1", 0), ("t2", 2), ("t3", 9)]))
    [row] = printed(asked)
    assert (row["target"], row["cause"]) == ("preferred_cannot_lead", "preferred_election")
    assert row["partitions"] == {"t0": "0", "t1": "0", "t2": "2"}
    settle(cluster, brokers_seen(1, 2, 3))
    [row] = printed(settle(cluster, ElectAsked(is_unclean=False, partitions=[("t0", 1)])))
    assert (row["target"], row["partitions"]) == ("not_needed", {"t0": "1"})


def test_a_topic_id_that_was_written() -> None:
    cluster = a_cluster(orders=[[1]], ids={"orders": None}, live=())
    settle(cluster, TermStarted(brokers(1), LOADED))
    row = printed(settle(cluster, knowing(cluster.brokers[1], orders="")))[0]
    assert (row["kind"], row["target"], row["reason"]) == ("topic", "rewritten", "topic id was missing")
    assert row["topic_id"] == cluster.topics["orders"].topic_id


def test_a_bug_is_logged_with_its_story() -> None:
    [line] = lines_for(a_cluster(), [Committed(SubjectParked("topic orders", "AssertionError: no"))], STAMP)
    assert (line.kind, line.target, line.reason) == ("controller", "parked", "topic orders: AssertionError: no")


def test_a_refusal_makes_no_line() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    assert settle(cluster, AlterPartitionAsked(2, 12, [a_proposal(cluster, "orders", 0, 2)])).lines == []


def test_causes_are_words_that_programs_can_read_and_an_unclean_election_is_called_one() -> None:
    cluster = a_cluster(orders=[[1, 2]], states={"orders-0": a_leadership(1, [1])}, unclean=True)
    broker, partition = printed(settle(cluster, brokers_seen(2, 3)))
    assert (broker["cause"], partition["cause"], partition["unclean"]) == ("broker_gone", "broker_gone", True)
    asked = settle(
        a_cluster(orders=[[1, 2]]), AlterPartitionAsked(1, 11, [a_proposal(a_cluster(orders=[[1, 2]]), "orders", 0, 1)])
    )
    assert [row["cause"] for row in printed(asked)] == ["isr_asked"]
    assert "unclean" not in printed(asked)[0]


def test_every_cause_is_in_the_contract_of_the_log() -> None:
    page = (Path(__file__).parents[2] / "docs" / "state-change-log.md").read_text(encoding="utf-8")
    assert [one.value for one in Cause if f"`{one.value}`" not in page] == []


def test_moves_are_grouped_by_kind_and_broker_in_the_order_in_which_they_happen() -> None:
    settled = settle(a_cluster(orders=[[1, 2], [1, 3], [2, 3]]), brokers_seen(2, 3))
    rows = [msgspec.to_builtins(line) for line in move_lines(settled.moves, STAMP)]
    shown = [(row["machine"], row["source"], row["target"], row.get("broker_id"), row["partitions"]) for row in rows]
    assert shown == [
        ("replica", "OnlineReplica", "OfflineReplica", 1, {"orders": "0-1"}),
        ("partition", "OnlinePartition", "OfflinePartition", None, {"orders": "0-1"}),
        ("partition", "OfflinePartition", "OnlinePartition", None, {"orders": "0-1"}),
    ]
    assert [(row["kind"], row["cause"], row["part"]) for row in rows] == [("move", "broker_gone", n) for n in (1, 2, 3)]


def test_no_line_about_moves_is_longer_than_64_kib_and_nothing_is_lost_between_them() -> None:
    odd = bits_of(range(1, 40_000, 2))
    topics = {f"topic-{number}": odd for number in range(3)} | {f"one-{number}": 1 << 7 for number in range(9_000)}
    move = Move(ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE, Cause.BROKER_GONE, 1, topics)
    lines = list(move_lines([move], STAMP, 5))
    assert max(len(msgspec.json.encode(line)) for line in lines) <= 64 * 1024
    assert [line.part for line in lines] == list(range(5, 5 + len(lines)))
    said: dict[str, int] = {}
    for line in lines:
        for topic, ranges in (line.partitions or {}).items():
            for one in ranges.split(","):
                first, _, last = one.partition("-")
                said[topic] = said.get(topic, 0) | bits_of(range(int(first), int(last or first) + 1))
    assert said == topics


def test_a_partition_that_moves_to_and_fro_is_not_grouped_out_of_its_order() -> None:
    moves = Moves()
    online, offline, cause = PartitionStatus.ONLINE, PartitionStatus.OFFLINE, Cause.REPAIRED
    moves.add(online, offline, cause, None, "orders", 0b01)
    moves.add(offline, online, cause, None, "orders", 0b01)
    moves.add(online, offline, cause, None, "orders", 0b10)
    moves.add(online, offline, cause, None, "orders", 0b01)
    assert [(one.target, one.topics) for one in moves.made] == [
        (offline, {"orders": 0b11}),
        (online, {"orders": 0b01}),
        (offline, {"orders": 0b01}),
    ]
