"""Nodes of operators, tools and brokers in ZooKeeper, written as Kafka's own write them, and their effects."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.codes import Code
from controller.core.decide.term_history import TERMS_KEPT
from controller.core.events import CreateTopicAsked, DrainAsked, LeaderAndIsrAnswered, UndrainAsked
from controller.core.operations import Create, Set
from tests.loop.admin_site import (
    CHANGES,
    ELECTION,
    LOG_DIR_EVENTS,
    Site,
    a_site,
    belief,
    leading,
)
from tests.support.harness import (
    a_controller,
    settled,
    state_of,
    topic_json,
    until,
)
from tests.support.znodes import generic

UNCLEAN = {"version": 1, "config": {"unclean.leader.election.enable": "true"}}
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAg"


# ---------------------------------------------------------------------- /admin/preferred_replica_election


def election_json(*partitions: tuple[str, int]) -> dict[str, object]:
    return {"version": 1, "partitions": [{"topic": topic, "partition": number} for topic, number in partitions]}


async def misled(site: Site) -> None:
    """orders-0 and orders-1 belong to broker 1, and are led by 2 and 3 with 1 back in sync."""
    for number, leader, isr in ((0, 2, [1, 2, 3]), (1, 3, [1, 3])):
        state = {"controller_epoch": 1, "leader": leader, "version": 1, "leader_epoch": 4, "isr": isr}
        await site.write(f"/brokers/topics/orders/partitions/{number}/state", state)


async def a_misled_topic(site: Site) -> None:
    await site.write("/brokers/topics/orders", topic_json([1, 2, 3], [1, 3]))
    await site.write("/brokers/topics/orders/partitions", b"")
    for number in (0, 1):
        await site.write(f"/brokers/topics/orders/partitions/{number}", b"")
    await misled(site)


async def test_the_election_node_is_carried_out_and_removed_again_and_again() -> None:
    site = await a_site()
    await a_misled_topic(site)
    async with leading(site):
        for number in (0, 1):
            await site.write(ELECTION, election_json(("orders", number)))
            await until(lambda: site.server.read(ELECTION) is None)
            assert site.leader("orders", number) == 1
        assert (state_of(site.server, "orders", 0) or {})["leader_epoch"] == 5


async def test_an_election_node_that_lay_there_before_the_term_is_carried_out_and_removed() -> None:
    """KAFKA-828, KAFKA-840."""
    site = await a_site()
    await a_misled_topic(site)
    await site.write(ELECTION, election_json(("orders", 0), ("nothing", 3), ("orders", 99)))
    async with leading(site):
        assert (site.leader("orders", 0), site.leader("orders", 1)) == (1, 3)
        assert site.server.read(ELECTION) is None


async def test_leaders_are_balanced_5_seconds_after_the_start_and_then_at_each_interval() -> None:
    site = await a_site()
    await a_misled_topic(site)
    async with leading(site, balance_interval_s=300.0) as node:
        for seconds, expected in ((4.0, 2), (1.0, 1)):
            site.server.clock.advance(seconds)
            await settled()
            assert site.leader("orders", 0) == expected
        assert {line.reason for line in node.heard.lines if line.topic == "orders"} >= {"leader imbalance"}
        await node.ask(DrainAsked(1))
        await node.ask(UndrainAsked(1))
        for seconds, expected in ((298.0, 2), (3.0, 1)):
            site.server.clock.advance(seconds)
            await settled()
            assert site.leader("orders", 0) == expected


# ---------------------------------------------------------------------- configuration


V1 = {"version": 1, "entity_type": "topics", "entity_name": "orders"}
V2 = {"version": 2, "entity_path": "topics/orders"}


@pytest.mark.parametrize("notification", [V1, V2], ids=["v1", "v2"])
async def test_a_change_of_a_topics_configuration_leads_partitions_that_may_now_be_led(
    notification: dict[str, object],
) -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [2, 3])
        site.die(3)
        await until(lambda: (state_of(site.server, "orders", 0) or {}).get("isr") == [2])
        site.die(2)
        await until(lambda: site.leader("orders") == -1)
        await site.come(3)
        await settled()
        assert site.leader("orders") == -1
        await site.write("/config/topics/orders", UNCLEAN)
        await site.write(f"{CHANGES}/config_change_", notification, sequential=True)
        await until(lambda: site.leader("orders") == 3)
        state = state_of(site.server, "orders", 0) or {}
        assert (state["isr"], state["leader_recovery_state"]) == ([3], 1)
        await until(lambda: any((line.reason or "").endswith("unclean election") for line in node.heard.lines))
        assert len(site.names(CHANGES)) == 1, "others want to read it, too"


@pytest.mark.parametrize("path", ["brokers/<default>", "topics/orders"])
async def test_configuration_that_was_there_before_the_term_is_in_force(path: str) -> None:
    site = await a_site()
    await site.write(f"/config/{path}", UNCLEAN)
    async with leading(site) as node:
        assert belief(node).is_unclean_allowed("orders")
        assert belief(node).is_unclean_allowed("users") == (path == "brokers/<default>")


async def test_configuration_that_a_tool_created_a_topic_with_is_in_force_though_nothing_announced_it() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.write("/config/topics/orders", UNCLEAN)
        await site.topic("orders", [2, 3])
        await settled()
        assert belief(node).is_unclean_allowed("orders")


@pytest.mark.parametrize("ahead_ms", [0, 3_600_000, -86_400_000])
async def test_notifications_are_kept_for_15_minutes_of_zookeepers_whatever_our_clock_says(ahead_ms: int) -> None:
    site = await a_site()
    async with leading(site, wall_ms=lambda: site.server.now_ms + ahead_ms):
        old = await site.write(f"{CHANGES}/config_change_", V2, sequential=True)
        site.server.clock.advance(15 * 60)
        await settled()
        kept = await site.write(f"{CHANGES}/config_change_", V1, sequential=True)
        await settled()
        assert site.names(CHANGES) == [one.rpartition("/")[2] for one in (old, kept)], "brokers may not have read it"
        site.server.clock.advance(1)
        await settled()
        new = await site.write(f"{CHANGES}/config_change_", V1, sequential=True)
        await until(lambda: site.server.read(old) is None)
        assert site.names(CHANGES) == [one.rpartition("/")[2] for one in (kept, new)]


async def test_notifications_are_read_though_their_parent_was_made_anew() -> None:
    """The numbers in their names begin with 0 again."""
    site = await a_site()
    async with leading(site) as node:
        for _ in range(3):
            await site.write(f"{CHANGES}/config_change_", V1, sequential=True)
        await settled()
        for name in site.names(CHANGES):
            await site.tool.delete(f"{CHANGES}/{name}", -1)
        await site.tool.delete(CHANGES, -1)
        await until(lambda: site.server.read(CHANGES) is not None)  # the controller makes it again
        await site.write("/config/topics/orders", UNCLEAN)
        made = await site.write(f"{CHANGES}/config_change_", V2, sequential=True)
        assert made.endswith("_0000000000")
        await until(lambda: belief(node).is_unclean_allowed("orders"))


@pytest.mark.parametrize("is_later", [False, True])
@pytest.mark.parametrize("parent", ["/isr_change_notification/isr_change_", f"{LOG_DIR_EVENTS}/log_dir_event_"])
async def test_a_rewritten_notification_goes_too(parent: str, is_later: bool) -> None:
    """Its version is not 0 then."""
    site = await a_site()
    path = f"{parent}0000000007"

    async def announce() -> None:
        assert site.server.commit(0, [Create(path, b"{}"), Set(path, b"nonsense", 0)]).refused is None

    if not is_later:
        await announce()
    async with leading(site):
        if is_later:
            await announce()
        await until(lambda: site.server.read(path) is None)


async def test_a_new_controller_removes_the_notifications_due_under_its_predecessor() -> None:
    site = await a_site()
    async with leading(site) as node:
        old = await site.write(f"{CHANGES}/config_change_", V2, sequential=True)
        await settled()
    site.server.expire(node.zk)
    site.server.clock.advance(15 * 60 + 1)
    async with leading(site):
        await site.write(f"{CHANGES}/config_change_", V1, sequential=True)
        await until(lambda: site.server.read(old) is None)


# ---------------------------------------------------------------------- log directories


async def test_an_announced_loss_of_a_directory_is_probed_and_the_answer_moves_leaderships() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2], [2, 1])
        await settled()
        told = len(node.heard.tellings)
        event = {"version": 1, "broker": 1, "event": 1}
        await site.write(f"{LOG_DIR_EVENTS}/log_dir_event_", event, sequential=True)
        await until(lambda: site.names(LOG_DIR_EVENTS) == [])
        [[_, probe]] = node.heard.tellings[told:]
        assert {broker_id: [set(rows) for rows in one.values()] for broker_id, one in probe.leaderships.items()} == {
            1: [{0, 1}]
        }
        epoch = belief(node).brokers[1].epoch
        node.heard.on_answer(LeaderAndIsrAnswered(1, epoch, frozenset({(TOPIC_ID, 1)}), frozenset({(TOPIC_ID, 0)})))
        await until(lambda: site.leader("orders", 0) == 2)
        assert generic(site.server.read("/klamm/failed_dirs/1") or b"") == {"broker_epoch": epoch}


async def test_a_successor_suspects_a_broker_with_bad_directories_until_it_answers() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [3, 1, 2])
        epoch = belief(node).brokers[1].epoch
        node.heard.on_answer(LeaderAndIsrAnswered(1, epoch, frozenset(), frozenset({(TOPIC_ID, 0)})))
        await until(lambda: site.server.read("/klamm/failed_dirs/1") is not None)
    site.server.expire(node.zk)
    async with leading(site) as successor:
        cluster = belief(successor)
        assert cluster.duties.suspect_ids == {1}
        successor.heard.on_answer(LeaderAndIsrAnswered(1, epoch, frozenset({(TOPIC_ID, 0)})))
        await until(lambda: site.server.read("/klamm/failed_dirs/1") is None)
        await until(lambda: cluster.duties.suspect_ids == frozenset())


# ---------------------------------------------------------------------- drains


async def test_a_drain_survives_its_controller_and_ends_by_undrain() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2, 3])
        assert (await node.ask(DrainAsked(1))).code is Code.NONE
        assert site.leader("orders") == 2
    site.server.expire(node.zk)
    async with leading(site) as successor:
        site.die(2)
        await until(lambda: site.leader("orders") == 3)
        assert (await successor.ask(UndrainAsked(1))).code is Code.NONE
        assert site.server.read("/klamm/draining/1") is None


async def test_a_successor_carries_out_a_drain_that_its_predecessor_granted() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2, 3])
        epoch = belief(node).brokers[1].epoch
    site.server.expire(node.zk)
    for path in ("/klamm/draining", "/klamm/draining/1"):
        await site.write(path, {"broker_epoch": epoch, "by": "hand"} if path.endswith("1") else b"")
    async with leading(site):
        await until(lambda: site.leader("orders") == 2)
        assert site.server.read("/klamm/draining/1") is not None


async def test_a_drain_ends_when_its_registration_ended_between_two_terms() -> None:
    site = await a_site()
    async with leading(site) as node:
        await node.ask(DrainAsked(1, is_shutdown=True, broker_epoch=None))
    site.server.expire(node.zk)
    site.die(1)
    await site.come(1)
    async with leading(site) as successor:
        assert belief(successor).draining_ids == frozenset()
        assert site.server.read("/klamm/draining/1") is None


# ---------------------------------------------------------------------- /klamm/terms


def record(site: Site, epoch: int) -> dict[str, Any]:
    data = site.server.read(f"/klamm/terms/{epoch}")
    assert data is not None
    read: dict[str, Any] = generic(data)
    return read


async def test_a_term_is_recorded_with_its_phases_up_to_the_last_acknowledgement() -> None:
    site = await a_site()
    async with leading(site) as node:
        await until(lambda: "acknowledged" in record(site, 1)["phases"])
        known = record(site, 1)
        assert (known["broker_id"], known["to_ms"], known["why"]) == (9, None, None)
        assert list(known["phases"]) == ["claimed", "loaded", "decided", "committed", "told", "acknowledged"]
        assert [one.controller_epoch for one in node.held.history()] == [1]


async def test_a_predecessor_is_closed_with_the_reason_it_could_not_write_itself() -> None:
    site = await a_site()
    async with a_controller(site.server, 1, zk=site.brokers[1]) as first:
        await until(lambda: first.handle.is_active)
        await until(lambda: site.server.read("/klamm/terms/1") is not None)
        await site.tool.delete("/controller", -1)
        await until(lambda: first.handle.controller_epoch == 2 and first.handle.is_active)
        assert record(site, 1)["why"] == "deposed"
        assert record(site, 1)["to_ms"] == record(site, 2)["from_ms"]
        site.die(1)
    async with leading(site):
        assert record(site, 2)["why"] == "session gone"


async def test_no_more_than_200_terms_are_kept() -> None:
    site = await a_site()
    await site.write("/controller_epoch", b"230")
    for path in ("/klamm", "/klamm/terms"):
        await site.write(path, b"")
    for epoch in range(1, 231):
        await site.write(f"/klamm/terms/{epoch}", {"broker_id": 1, "from_ms": epoch, "to_ms": epoch, "why": "deposed"})
    async with leading(site):
        await until(lambda: len(site.names("/klamm/terms")) == TERMS_KEPT)
        assert {int(name) for name in site.names("/klamm/terms")} == set(range(32, 232))


# ---------------------------------------------------------------------- deletion markers


async def test_a_marker_for_a_topic_that_does_not_exist_is_removed_and_one_that_must_not_be_deleted_stays() -> None:
    site = await a_site()
    async with leading(site, delete_enabled=False) as node:
        await site.topic("orders", [1, 2])
        for name, data in (("nothing", b""), ("orders", b"{")):
            await site.write(f"/admin/delete_topics/{name}", data)
        await until(lambda: site.names("/admin/delete_topics") == [])
        assert site.server.read("/brokers/topics/orders") is not None
        assert (await node.ask(CreateTopicAsked("users", assignment={0: (1, 2)}))).code is Code.NONE
