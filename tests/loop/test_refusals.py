"""A refusal is isolated: a refused write is left out alone, reported with a remedy, and tried again."""

from __future__ import annotations

import json

import pytest

from controller.base.config import Limits
from controller.core import formats
from controller.core.codes import Code
from controller.core.events import (
    AlterPartitionAsked,
    ConfigAsked,
    CreateTopicAsked,
    DeleteTopicAsked,
    DrainAsked,
    ElectAsked,
    Event,
    ForgetBrokerAsked,
    GrowTopicAsked,
    LeaderAndIsrAnswered,
    ProducerIdsAsked,
    ReassignAsked,
)
from controller.core.project.refusals import sentence_for
from controller.loop.inbox import IsrReply, OutcomesReply
from tests.api.api_support import FakeHandle, View, asking
from tests.fakes.acls import ALL, READ, grant_to_all
from tests.fakes.client import FakeClient
from tests.loop.admin_site import (
    Site,
    a_site,
    belief,
    leading,
    proposal_for,
)
from tests.support.harness import (
    Node,
    settled,
    state_of,
    until,
)

NO_AUTH, NOT_EMPTY, QUOTA_EXCEEDED, THROTTLED, UNKNOWN = -102, -111, -125, -127, -999
STATE = "/brokers/topics/{}/partitions/{}/state".format


async def pass_time(site: Site, seconds: int) -> None:
    """Tick by tick; everything that comes of each."""
    for _ in range(seconds):
        site.server.clock.advance(1)
        await settled()


async def reasons_of(node: Node) -> tuple[str, list[str]]:
    """Health, as the active controller says it."""
    handle = FakeHandle()
    handle.cluster = belief(node)
    async with asking(View(), handle) as client, client.get("/healthz/cluster") as response:
        body = await response.json()
        return body["status"], body["reasons"]


def said(node: Node) -> list[str]:
    """How refusals began and ended, in the state-change log."""
    return [f"{one.target} {one.reason}" for one in node.heard.lines if one.target in ("refused", "taken")]


def transactions(site: Site, node: Node) -> int:
    return node.zk.calls.count("transact")


async def thirteen_topics(site: Site) -> list[str]:
    names = [f"topic{number:02}" for number in range(13)]
    for name in names:
        await site.topic(name, [2, 1], [2, 3], [2, 1])
    return names


async def test_one_state_that_may_not_be_written_keeps_no_other_partition_from_its_new_leader() -> None:
    site = await a_site()
    async with leading(site) as node:
        names = await thirteen_topics(site)
        site.server.set_acl(STATE("topic05", 1), grant_to_all(READ))
        site.die(2)
        await settled()
        await pass_time(site, 20)
        left = [(name, number) for name in names for number in range(3) if site.leader(name, number) == 2]
        assert left == [("topic05", 1)]
        assert node.handle.controller_epoch == 1
        status, reasons = await reasons_of(node)
        assert status == "yellow"
        [reason] = reasons
        assert f"topic topic05: ZooKeeper refuses to write {STATE('topic05', 1)}: NoAuth." in reason
        assert "Give the controller's user permission to write it (setAcl)." in reason
        assert "it is tried again every 16 s" in reason
        # mended: tried again as soon as the pause is over, and all signs vanish
        site.server.set_acl(STATE("topic05", 1), grant_to_all(ALL))
        await pass_time(site, 17)
        assert site.leader("topic05", 1) == 3
        assert (await reasons_of(node)) == ("green", [])
        assert [line.partition(": ")[0] for line in said(node)] == ["refused topic topic05", "taken topic topic05"]
        told = [telling.metadata for _, telling in node.heard.tellings if telling.metadata][-1]
        assert [topic for topic, _ in told] == ["topic05"]


async def test_a_foreign_child_below_one_topic_keeps_no_other_deletion_from_its_end() -> None:
    site = await a_site()
    async with leading(site) as node:
        names = [f"topic{number:02}" for number in range(20)]
        for name in names:
            await site.topic(name, [3])
        await site.tool.create("/brokers/topics/topic07/notes", b"by hand")
        await site.tool.create("/brokers/topics/topic08/partitions/backup", b"by hand")
        site.die(3)
        await settled()
        for name in names:
            await site.write(f"/admin/delete_topics/{name}", formats.encode_marker(abandon_offline=True))
        await settled()
        await pass_time(site, 5)
        assert site.names("/brokers/topics") == site.names("/admin/delete_topics") == ["topic07", "topic08"]
        _, reasons = await reasons_of(node)
        assert [reason.partition(" So since")[0] for reason in reasons[:2]] == [
            "topic topic07: ZooKeeper refuses to delete /brokers/topics/topic07: NotEmpty. "
            "Remove its children that are not Kafka's: /brokers/topics/topic07/notes.",
            "topic topic08: ZooKeeper refuses to delete /brokers/topics/topic08/partitions: NotEmpty. "
            "Remove its children that are not Kafka's: /brokers/topics/topic08/partitions/backup.",
        ]
        assert site.server.read("/brokers/topics/topic08/partitions/backup") == b"by hand", "not ours to delete"
        await site.tool.delete("/brokers/topics/topic07/notes", -1)
        await site.tool.delete("/brokers/topics/topic08/partitions/backup", -1)
        await pass_time(site, 8)
        assert site.names("/brokers/topics") == site.names("/admin/delete_topics") == []
        assert belief(node).refused == {}


@pytest.mark.parametrize("code", [QUOTA_EXCEEDED, THROTTLED, UNKNOWN])
async def test_a_refusal_that_passes_costs_no_more_than_its_pause(code: int) -> None:
    site = await a_site()
    async with leading(site) as node:
        names = await thirteen_topics(site)
        site.server.refuse(STATE("topic05", 1), code, "set")
        site.die(2)
        await settled()
        await pass_time(site, 10)
        assert site.leader("topic05", 1) == 2
        site.server.lift(STATE("topic05", 1))
        await pass_time(site, 9)
        assert {site.leader(name, number) for name in names for number in range(3)} == {1, 3}
        assert belief(node).refused == {}
        assert node.handle.controller_epoch == 1


async def test_a_leader_is_told_which_of_its_proposals_is_refused_and_the_others_are_granted() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2, 3])
        await site.write("/brokers/topics/users", json.loads(site.server.read("/brokers/topics/orders") or b"") | {
            "topic_id": "BBBBBBBBBBBBBBBBBBBBBg"})  # fmt: skip
        await until(lambda: site.leader("users"))
        await settled()
        site.server.set_acl(STATE("orders", 0), grant_to_all(READ))
        proposal = proposal_for(node, 1, 2)
        other = type(proposal)("BBBBBBBBBBBBBBBBBBBBBg", 0, 0, 0, 0, proposal.isr)
        asked = AlterPartitionAsked(1, belief(node).brokers[1].epoch, [proposal, other])
        reply = await node.ask(asked)
        assert isinstance(reply, IsrReply)
        rows = {topic.topic_id: topic.partitions[0] for topic in reply.topics}
        assert rows["BBBBBBBBBBBBBBBBBBBBBg"].error_code == Code.NONE
        assert rows["BBBBBBBBBBBBBBBBBBBBBg"].isr == (1, 2)
        assert rows[proposal.topic_id].error_code == Code.OPERATION_NOT_ATTEMPTED
        assert rows[proposal.topic_id].isr == (1, 2, 3)
        # a leader that asks again and again costs a transaction for each pause, not for each time it asks
        before = transactions(site, node)
        for _ in range(120):
            await pass_time(site, 1)
            await node.ask(AlterPartitionAsked(1, belief(node).brokers[1].epoch, [proposal]))
        assert len(belief(node).refused) == 1
        assert transactions(site, node) - before < 12
        site.server.set_acl(STATE("orders", 0), grant_to_all(ALL))
        await pass_time(site, 60)
        await node.ask(AlterPartitionAsked(1, belief(node).brokers[1].epoch, [proposal]))
        assert (state_of(site.server, "orders", 0) or {})["isr"] == [1, 2]
        assert belief(node).refused == {}


async def test_a_write_that_is_wanted_no_more_is_refused_no_more() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2, 3])
        site.server.set_acl(STATE("orders", 0), grant_to_all(READ))
        asked = AlterPartitionAsked(1, belief(node).brokers[1].epoch, [proposal_for(node, 1, 2)])
        await node.ask(asked)
        assert len(belief(node).refused) == 1
        await pass_time(site, 65)
        assert belief(node).refused == {}


ORDERS = "/brokers/topics/orders"
REQUESTS: list[tuple[Event, str]] = [
    (CreateTopicAsked("users", partitions=1, replication_factor=1), "/brokers/topics/users"),
    (CreateTopicAsked("users", partitions=1, replication_factor=1), "/config/topics/users"),
    (GrowTopicAsked("orders", 4), ORDERS),
    (DeleteTopicAsked("orders"), "/admin/delete_topics/orders"),
    (DrainAsked(1), "/klamm/draining"),
    (DrainAsked(1, is_shutdown=True), "/klamm/draining/1"),
    (ConfigAsked("topics", "orders", {"retention.ms": "1"}), "/config/topics/orders"),
    (ConfigAsked("topics", "orders", {"retention.ms": "1"}), "/config/changes/config_change_"),
    (ForgetBrokerAsked(3), "/klamm/brokers/3"),
    (ProducerIdsAsked(1, -1), "/latest_producer_id_block"),
]


@pytest.mark.parametrize(
    ("event", "path"), REQUESTS, ids=lambda one: one if isinstance(one, str) else type(one).__name__
)
async def test_a_refused_caller_is_told_at_once_and_by_name(event: Event, path: str) -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2], [2, 1])
        await pass_time(site, 2)  # brokers are noted by now
        site.die(3)
        await settled()
        if isinstance(event, ProducerIdsAsked):
            event = ProducerIdsAsked(1, belief(node).brokers[1].epoch)
        site.server.refuse(path, NO_AUTH, "create", "set", "delete")
        reply = await node.ask(event)
        assert reply.code is Code.OPERATION_NOT_ATTEMPTED
        assert path in reply.detail
        assert "NoAuth. Give the controller's user permission to" in reply.detail
        assert site.leader("orders", 0) == 1, "no part of a refused write is done"
        # the operator that mended it asks again and does not wait for a pause
        site.server.lift(path)
        assert (await node.ask(event)).code is Code.NONE
        assert belief(node).refused == {}


async def test_of_partitions_asked_for_together_each_has_its_own_answer() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2], [1, 2])
        await node.ask(DrainAsked(1))
        await node.ask(ElectAsked(False))
        assert [site.leader("orders", number) for number in (0, 1)] == [2, 2]
        await site.tool.delete("/klamm/draining/1", -1)
        belief(node).duties.drains.clear()
        site.server.refuse(STATE("orders", 1), NO_AUTH, "set")
        reply = await node.ask(ElectAsked(False, [("orders", 0), ("orders", 1)]))
        assert isinstance(reply, OutcomesReply)
        outcomes = reply.outcomes
        assert [(one.partition, one.code) for one in outcomes] == [(0, Code.NONE), (1, Code.OPERATION_NOT_ATTEMPTED)]
        assert "NoAuth" in outcomes[1].detail


async def test_a_drain_moves_writable_partitions_and_the_rest_when_it_may() -> None:
    site = await a_site()
    async with leading(site) as node:
        names = await thirteen_topics(site)
        site.server.refuse(STATE("topic05", 1), NO_AUTH, "set")
        assert (await node.ask(DrainAsked(2))).code is Code.NONE
        await settled()
        left = [(name, number) for name in names for number in range(3) if site.leader(name, number) == 2]
        assert left == [("topic05", 1)]
        site.server.lift(STATE("topic05", 1))
        await pass_time(site, 3)
        assert site.leader("topic05", 1) == 3
        assert belief(node).refused == {}


async def test_a_reassignment_that_is_refused_is_told_and_one_that_runs_ends_when_it_may() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2], [1, 2])
        site.server.refuse(ORDERS, NO_AUTH, "set")
        reply = await node.ask(ReassignAsked({("orders", 0): (1, 3)}))
        assert isinstance(reply, OutcomesReply)
        assert [one.code for one in reply.outcomes] == [Code.OPERATION_NOT_ATTEMPTED]
        site.server.lift(ORDERS)
        await node.ask(ReassignAsked({("orders", 0): (1, 3)}))
        assert belief(node).reassigning == {("orders", 0)}
        site.server.refuse(ORDERS, NO_AUTH, "set")
        before = transactions(site, node)
        proposal = proposal_for(node, 1, 2, 3)
        await node.ask(AlterPartitionAsked(1, belief(node).brokers[1].epoch, [proposal]))
        await settled()
        await pass_time(site, 30)
        assert belief(node).reassigning == {("orders", 0)}
        assert [one.path for one in belief(node).refused.values()] == [ORDERS]
        assert transactions(site, node) - before < 10
        site.server.lift(ORDERS)
        await pass_time(site, 32)
        assert belief(node).reassigning == set()
        assert belief(node).refused == {}


async def test_a_topic_larger_than_a_request_is_refused_and_the_loop_goes_on() -> None:
    site = await a_site()
    async with leading(site) as node:
        site.server.max_request_bytes = 4_000
        reply = await node.ask(CreateTopicAsked("large", partitions=400, replication_factor=1))
        assert reply.code is Code.OPERATION_NOT_ATTEMPTED
        assert "no request as large" in reply.detail
        assert "jute.maxbuffer" in reply.detail
        assert (await node.ask(CreateTopicAsked("small", partitions=1, replication_factor=1))).code is Code.NONE
        await until(lambda: site.leader("small"))


async def test_notes_of_ours_that_may_not_be_written_stop_no_broker() -> None:
    site = await a_site()
    for path in ("/klamm", "/klamm/draining", "/klamm/failed_dirs", "/klamm/terms", "/klamm/brokers"):
        await site.write(path, b"")
    for kind in ("draining", "failed_dirs"):  # of an earlier life of broker 2
        await site.write(f"/klamm/{kind}/2", {"version": 1, "broker_epoch": 1, "by": "hand"})
    site.server.refuse("/klamm", NO_AUTH, "create", "set", "delete", is_deep=True)
    async with leading(site) as node:
        assert sorted(belief(node).brokers) == [1, 2, 3]
        await site.topic("orders", [2, 1])
        await pass_time(site, 120)
        site.die(2)
        await until(lambda: site.leader("orders") == 1)
        assert node.handle.controller_epoch == 1
        status, reasons = await reasons_of(node)
        assert status == "yellow"
        assert reasons[-1].endswith("more writes are refused by ZooKeeper")
        await node.handle.resign("shut down")  # and a controller that resigns does not wait for its record
        site.server.lift("/klamm")
        await pass_time(site, 65)
        assert belief(node).refused == {}
        assert site.names("/klamm/draining") == site.names("/klamm/failed_dirs") == []
        assert site.names("/klamm/terms") == ["1"]


async def test_a_failed_directory_counts_though_it_may_not_be_written_down() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2])
        site.server.refuse("/klamm/failed_dirs", NO_AUTH, "create")
        epoch = belief(node).brokers[1].epoch
        orders = frozenset({(belief(node).topics["orders"].topic_id or "", 0)})
        node.heard.on_answer(LeaderAndIsrAnswered(1, epoch, frozenset(), orders))
        await until(lambda: site.leader("orders") == 2)
        assert belief(node).duties.failed_dirs == {1: {("orders", 0)}}
        await node.ask(ElectAsked(False))
        assert site.leader("orders") == 2
        site.server.lift("/klamm/failed_dirs")
        await pass_time(site, 3)
        assert site.names("/klamm/failed_dirs") == ["1"]
        assert belief(node).refused == {}


async def test_a_notification_that_may_not_be_removed_stops_nothing_and_goes_when_it_may() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2, 3])
        site.server.refuse("/isr_change_notification/isr_change_0000000000", NO_AUTH, "delete")
        for isr in ([1, 2], [1]):
            state = (state_of(site.server, "orders", 0) or {}) | {"isr": isr}
            await site.write(STATE("orders", 0), state)
            notice = {"version": 1, "partitions": [{"topic": "orders", "partition": 0}]}
            await site.write("/isr_change_notification/isr_change_", notice, sequential=True)
            await settled()
        assert site.names("/isr_change_notification") == ["isr_change_0000000000"]
        known = belief(node).topics["orders"].partitions[0].state
        assert known is not None
        assert known.isr == (1,)
        site.server.lift("/isr_change_notification/isr_change_0000000000")
        await pass_time(site, 5)
        assert site.names("/isr_change_notification") == []
        assert belief(node).refused == {}


async def test_a_transaction_of_refusals_alone_costs_about_one_for_each_and_hardly_any_afterwards() -> None:
    site = await a_site()
    partitions, healthy = 400, (7, 250, 399)
    async with leading(site) as node:
        await site.topic("orders", *([2, 1] for _ in range(partitions)))
        for number in set(range(partitions)) - set(healthy):
            site.server.refuse(STATE("orders", number), NO_AUTH, "set")
        before, sizes = transactions(site, node), list[int]()
        commit = site.server.commit

        def note(session_id: int, ops: object, asker: object = None) -> object:
            if session_id == node.zk.session_id:
                sizes.append(len(ops))  # type: ignore[arg-type]
            return commit(session_id, ops, asker)  # type: ignore[arg-type]

        site.server.commit = note  # type: ignore[assignment,method-assign]
        site.die(2)
        await until(lambda: all(site.leader("orders", number) == 1 for number in healthy), 50_000)
        await settled()
        refused = partitions - len(healthy)
        assert transactions(site, node) - before <= refused + 20
        assert sum(sizes) < 6 * partitions, "a batch that is refused again and again is not sent whole each time"
        assert len(belief(node).refused) == refused
        started = transactions(site, node)
        for _ in range(600):
            site.server.clock.advance(1)
            await settled(50)
        await settled(5_000)
        attempts = 6 + 600 // 60  # 1, 2, 4, 8, 16, 32, then 60 seconds
        assert transactions(site, node) - started <= attempts * (refused + 20)
        _, reasons = await reasons_of(node)
        assert reasons[-1] == f"{refused - 5} more writes are refused by ZooKeeper"


async def test_an_endless_conflict_waits_and_is_not_given_up_for_the_term() -> None:
    site = await a_site()
    async with leading(site, limits=Limits(conflicts_per_subject=3)) as node:
        await site.topic("orders", [2, 1])
        await site.topic("users", [2, 1])
        is_busy = True

        async def keep_changing(client: FakeClient, call: str) -> None:
            if is_busy and client is node.zk and call == "transact":
                data = site.server.read(STATE("orders", 0)) or b""
                await site.tool.set(STATE("orders", 0), data, -1)

        site.server.on_request = keep_changing
        site.die(2)
        await until(lambda: belief(node).refused)
        await pass_time(site, 10)
        assert site.leader("users") == 1
        assert site.leader("orders") == 2
        assert belief(node).parked == {}
        assert "Another client keeps changing it" in sentence_for(next(iter(belief(node).refused.values())))
        is_busy = False
        await pass_time(site, 20)
        assert site.leader("orders") == 1
        assert belief(node).refused == {}


async def test_a_topic_that_goes_while_it_is_refused_leaves_no_sign() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [2, 1])
        site.server.refuse(STATE("orders", 0), NO_AUTH, "set")
        site.die(2)
        await until(lambda: belief(node).refused)
        site.server.lift(STATE("orders", 0))
        for path in (STATE("orders", 0), f"{ORDERS}/partitions/0", f"{ORDERS}/partitions", ORDERS):
            await site.tool.delete(path, -1)
        await settled()
        assert belief(node).refused == {}
        assert [line.partition(" ")[0] for line in said(node)] == ["refused", "taken"]


async def test_a_topic_id_that_a_tool_dropped_is_written_back_when_that_is_allowed_again() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [1, 2])
        site.server.refuse(ORDERS, NO_AUTH, "set")
        znode = json.loads(site.server.read(ORDERS) or b"")
        topic_id = znode.pop("topic_id")
        site.server.lift(ORDERS)
        await site.write(ORDERS, znode)
        site.server.refuse(ORDERS, NO_AUTH, "set")
        await settled()
        assert belief(node).refused
        site.server.lift(ORDERS)
        await pass_time(site, 5)
        assert json.loads(site.server.read(ORDERS) or b"")["topic_id"] == topic_id
        assert belief(node).refused == {}


async def test_a_write_of_our_own_that_a_caller_asks_for_too_is_still_tried_again() -> None:
    """The caller was told, but the controller wanted it without being asked."""
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [2, 1])
        site.server.refuse(STATE("orders", 0), QUOTA_EXCEEDED, "set")
        site.die(2)
        await until(lambda: belief(node).refused)
        for is_unclean in (True, False):
            reply = await node.ask(ElectAsked(is_unclean, [("orders", 0)]))
            assert isinstance(reply, OutcomesReply)
            assert [one.code for one in reply.outcomes] != [Code.NONE]
        _, reasons = await reasons_of(node)
        assert "it is tried again every" in reasons[-1]
        site.server.lift(STATE("orders", 0))
        await pass_time(site, 9)
        assert site.leader("orders") == 1
        assert belief(node).refused == {}
        assert [line.partition(" ")[0] for line in said(node)] == ["refused", "taken"]


async def test_a_write_of_our_own_waits_for_no_caller_who_met_the_refusal_before() -> None:
    site = await a_site()
    async with leading(site) as node:
        await site.topic("orders", [2, 1, 3])
        site.server.refuse(STATE("orders", 0), QUOTA_EXCEEDED, "set")
        await node.ask(AlterPartitionAsked(2, belief(node).brokers[2].epoch, [proposal_for(node, 2, 1)]))
        assert [one.is_asked for one in belief(node).refused.values()] == [True]
        site.die(2)
        await settled()
        assert [one.is_asked for one in belief(node).refused.values()] == [False]
        site.server.lift(STATE("orders", 0))
        await pass_time(site, 5)
        assert site.leader("orders") == 1
        assert belief(node).refused == {}


async def test_a_note_that_is_to_go_goes_though_a_caller_was_refused_there_meanwhile() -> None:
    site = await a_site()
    for path in ("/klamm", "/klamm/draining"):
        await site.write(path, b"")
    await site.write("/klamm/draining/2", {"version": 1, "broker_epoch": 1, "by": "hand"})  # of an earlier life
    site.server.refuse("/klamm/draining/2", NO_AUTH, "create", "set", "delete")
    async with leading(site) as node:
        await until(lambda: belief(node).refused)
        assert (await node.ask(DrainAsked(2))).code is Code.OPERATION_NOT_ATTEMPTED
        site.server.lift("/klamm/draining/2")
        await pass_time(site, 65)
        assert site.names("/klamm/draining") == []
        assert belief(node).refused == {}
