"""Elections on real processes: preferred leaders from three sides and by the clock, offline and unclean ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from brokerstub.lab.zookeeper import ZooKeeperServer
from controller.core.events import ElectAsked
from tests.faults.checker.history import Call
from tests.integration.cluster import Cluster, now_ms
from tests.integration.duties import (
    a_duty_cluster,
    ask,
    controlled_by,
    klamm,
    take_offline,
    with_topics,
    write,
)
from tests.waiting import until

NODE = "/admin/preferred_replica_election"

pytestmark = pytest.mark.java


@pytest.fixture
async def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with a_duty_cluster(zookeeper, tmp_path, {"controlled.shutdown.enable": "false"}) as cluster:
        yield cluster


def names(*topics: str) -> list[dict[str, object]]:
    return [{"topic": topic, "partition": 0} for topic in topics]


async def leaders(cluster: Cluster) -> dict[str, int]:
    """Of partition 0 of each topic."""
    return {topic: state.leader for (topic, number), state in (await cluster.states()).items() if number == 0}


async def move_leaderships_off(cluster: Cluster, broker_id: int) -> None:
    await ask(cluster, "POST", f"/v1/brokers/{broker_id}/drain", {})
    await ask(cluster, "DELETE", f"/v1/brokers/{broker_id}/drain")
    await until(cluster.is_agreed, "all were told")


async def test_the_first_replica_leads_again_by_the_node_by_the_api_and_by_the_command(cluster: Cluster) -> None:
    await with_topics(cluster, a=[[1, 2, 3]], b=[[1, 2, 3]], c=[[1, 2, 3]], d=[[1, 2, 3]])
    await move_leaderships_off(cluster, 1)
    before = await cluster.states()
    assert 1 not in (await leaders(cluster)).values()

    await write(cluster, NODE, {"version": 1, "partitions": names("a", "unheard-of")})

    async def is_consumed() -> bool:
        return await cluster.zookeeper("exists", NODE) is None

    await until(is_consumed, "the node is carried out and removed")
    assert {topic for topic, leader in (await leaders(cluster)).items() if leader == 1} == {"a"}

    for code in ("NONE", "ELECTION_NOT_NEEDED"):
        status, answer = await ask(cluster, "POST", "/v1/elections", {"type": "preferred", "partitions": names("b")})
        assert (status, [one["code"] for one in answer["partitions"]]) == (200, [code])
    assert {topic for topic, leader in (await leaders(cluster)).items() if leader == 1} == {"a", "b"}

    said = await klamm(cluster, "elect", "--type", "preferred", "--all")
    assert {(one["topic"], one["code"]) for one in said["partitions"]} == {("c", "NONE"), ("d", "NONE")}
    assert set((await leaders(cluster)).values()) == {1}
    await cluster.whole()
    after = await cluster.states()
    assert {key: (state.leader_epoch, state.isr) for key, state in after.items()} == {
        key: (state.leader_epoch + 1, state.isr) for key, state in before.items()
    }, "one leader epoch each, the order of the ISR stays"


async def test_a_preferred_election_that_cannot_be_won_changes_nothing_and_says_so(cluster: Cluster) -> None:
    await controlled_by(cluster, 3)
    await with_topics(cluster, a=[[1, 2, 3]])
    await cluster.brokers[1].stop()

    async def is_out() -> bool:
        return 1 not in (await cluster.states())["a", 0].isr and await cluster.is_agreed()

    await until(is_out, "all were told that it is gone")
    before = await cluster.states()
    words = ("elect", "--type", "preferred", "--topic", "a", "--partition", "0")
    said = await klamm(cluster, *words, code=1)
    assert [one["code"] for one in said["partitions"]] == ["PREFERRED_LEADER_NOT_AVAILABLE"]
    for nonsense in (b"{nonsense", b""):
        await cluster.zookeeper("create", NODE, nonsense)

        async def is_removed() -> bool:
            return await cluster.zookeeper("exists", NODE) is None

        await until(is_removed, "nonsense is removed, too")
    assert await cluster.states() == before


@pytest.mark.slow
async def test_leaderships_go_back_by_themselves_where_a_broker_leads_too_few(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    properties = {"auto.leader.rebalance.enable": "true", "leader.imbalance.check.interval.seconds": "1"}
    async with a_duty_cluster(zookeeper, tmp_path, properties) as cluster:
        await with_topics(cluster, a=[[1, 2], [1, 2]], b=[[2, 1], [3, 1]])
        await move_leaderships_off(cluster, 1)

        async def is_balanced() -> bool:
            return all(leader == {"a": 1, "b": 2}[topic] for topic, leader in (await leaders(cluster)).items())

        await until(is_balanced, "the first replicas lead")
        await cluster.whole()


@pytest.mark.slow
async def test_an_offline_partition_is_led_again_as_soon_as_anyone_in_sync_returns(cluster: Cluster) -> None:
    await controlled_by(cluster, 3)
    await with_topics(cluster, a=[[1, 2]])
    await take_offline(cluster, "a")
    status, health = await ask(cluster, "GET", "/healthz/cluster")
    assert (status, health["status"]) == (503, "red")
    assert [one["topic"] for one in await klamm(cluster, "partitions", "--offline")] == ["a"]
    await cluster.start(1)
    state = (await cluster.states())["a", 0]
    assert (state.leader, set(state.isr)) == (1, {1, 2})


@pytest.mark.slow
async def test_an_unclean_leader_is_elected_by_hand_for_named_partitions_only(cluster: Cluster) -> None:
    await controlled_by(cluster, 3)
    await with_topics(cluster, a=[[1, 2]], b=[[1, 2]], c=[[1, 2]], led=[[3]])
    await take_offline(cluster, "a", "b", "c")
    before = await cluster.states()
    wanted = ElectAsked(is_unclean=True, partitions=[("a", 0), ("b", 0)])
    call = Call("elect-unclean", "a, b", now_ms(), None, None, wanted)
    cluster.calls.append(call)  # as long as it is not answered, it may be carried out
    asked = {"type": "unclean", "partitions": names("a", "led", "unheard-of")}
    status, answer = await ask(cluster, "POST", "/v1/elections", asked)
    assert (status, {one["topic"]: one["code"] for one in answer["partitions"]}) == (
        200,
        {"a": "NONE", "led": "ELECTION_NOT_NEEDED", "unheard-of": "UNKNOWN_TOPIC_OR_PARTITION"},
    )
    await klamm(cluster, "elect", "--type", "unclean", "--topic", "b", "--partition", "0")
    cluster.calls[-1] = call._replace(ended_ms=now_ms(), outcome="ok")
    assert await leaders(cluster) == {"a": 2, "b": 2, "c": -1, "led": 3}

    recovering = [
        one.path
        for one in cluster.order.operations()
        if one.kind == "set" and one.path is not None and b'"leader_recovery_state":1' in (one.data or b"")
    ]
    assert sorted(recovering) == [f"/brokers/topics/{topic}/partitions/0/state" for topic in "ab"]
    after = await cluster.states()
    for topic in "ab":
        assert after[topic, 0].isr == (2,)
        assert after[topic, 0].leader_epoch == before[topic, 0].leader_epoch + 1
    assert after["c", 0] == before["c", 0]
    await cluster.start(1)
    assert await leaders(cluster) == {"a": 2, "b": 2, "c": 1, "led": 3}
    for topic in "ab":
        state, _ = (await cluster.state_znodes(topic, [0]))[0]
        assert "leader_recovery_state" not in state, "with its first word about the ISR the leader has recovered"
