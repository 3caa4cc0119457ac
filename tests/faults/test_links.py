"""Every primitive has its effect on the ways between real processes, and is gone when it is healed."""

from __future__ import annotations

import time

import pytest

from brokerstub.lab.http_proxy import GARBAGE
from brokerstub.lab.proxy import Direction
from tests.faults.chaos import links
from tests.faults.chaos.target_cluster import Field
from tests.faults.conftest import aimed_at, healed, sessions_of
from tests.waiting import until

MULTI = 14

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]


async def test_cut_off_it_has_no_connection_and_loses_its_session(field: Field) -> None:
    _, broker = aimed_at(field)
    session = sessions_of(field, broker)[-1]
    injury = await links.cut(field, broker)
    await until(lambda: field.cluster.order.end_of(session), "its session expires")
    assert broker.proxies[0].connections == 0
    await healed(field, injury)


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_silenced_nothing_arrives_that_way(field: Field, direction: Direction) -> None:
    _, broker = aimed_at(field)
    injury = await links.silence(field, broker, direction)
    before = broker.proxies[0].passed_bytes[direction]

    async def is_felt() -> bool:
        return (await broker.get("/readyz") or {}).get("status") == "not ready"

    await until(is_felt, "it is cut off")
    assert broker.proxies[0].passed_bytes[direction] == before
    await healed(field, injury)


async def test_with_the_answer_lost_it_is_done_all_the_same(field: Field) -> None:
    controller, _ = aimed_at(field)
    injury = await links.lose_answer(field, controller, MULTI)
    status = await controller.create_topic("done")
    assert status in (201, 504)
    await healed(field, injury)
    assert ("done", 0) in await field.cluster.states()


async def test_with_the_request_lost_the_connection_ends(field: Field) -> None:
    controller, _ = aimed_at(field)
    injury = await links.lose_request(field, controller, MULTI)
    assert await controller.create_topic("asked") in (201, 503, 504)
    await healed(field, injury)


async def test_a_slow_zookeeper_takes_its_time(field: Field) -> None:
    controller, _ = aimed_at(field)
    injury = await links.slow_zookeeper(field, controller, 300, 300)
    begun = time.monotonic()
    assert await controller.create_topic("slow") == 201
    assert time.monotonic() - begun > 0.5
    await healed(field, injury)


async def test_cut_from_each_other_they_have_no_connection(field: Field) -> None:
    controller, broker = aimed_at(field)
    way = field.cluster.peers.ways[controller.broker_id, broker.broker_id]
    await until(lambda: way.connections, "they talk")
    injury = await links.cut_link(field, controller, broker)
    await until(lambda: way.connections == 0, "no more")
    await healed(field, injury)


async def test_mute_it_is_not_heard(field: Field) -> None:
    controller, broker = aimed_at(field)
    way = field.cluster.peers.ways[controller.broker_id, broker.broker_id]
    await field.cluster.brokers[controller.broker_id].create_topic("heard")  # an idle connection is closed
    await until(lambda: way.connections, "they talk")
    injury = await links.mute(field, controller, broker)
    before = way.passed_bytes["up"]
    await field.cluster.brokers[controller.broker_id].create_topic("unheard")
    assert way.passed_bytes["up"] == before
    await healed(field, injury)


async def test_a_slow_link_takes_its_time(field: Field) -> None:
    controller, broker = aimed_at(field)
    way = field.cluster.peers.ways[controller.broker_id, broker.broker_id]
    injury = await links.slow_link(field, controller, broker, 400)
    begun = time.monotonic()
    headers = {"Host": broker.url.removeprefix("http://")}
    assert (await field.cluster.http.get(f"http://{way.address}/livez", headers, 60_000))[0] == 200
    assert time.monotonic() - begun > 0.8
    await until(injury.has_hit, "something passed")
    await healed(field, injury)


async def test_a_request_arrives_twice(field: Field) -> None:
    controller, broker = aimed_at(field)
    injury = await links.double(field, controller, broker, "/rpc/v1/leader-and-isr")
    await field.cluster.serve("doubled")
    await until(injury.has_hit, "a request was doubled")

    def is_there_twice() -> bool:
        lines = [(one["event_id"], one["reason"]) for one in broker.rpcs() if "leader-and-isr" in one["reason"]]
        return len(lines) != len(set(lines))

    await until(is_there_twice, "both are answered")
    await healed(field, injury)


async def test_an_obeyed_request_whose_answer_is_lost_is_sent_again(field: Field) -> None:
    controller, broker = aimed_at(field)
    injury = await links.lose_http_answers(field, controller, broker, "/rpc/v1/leader-and-isr")
    await field.cluster.serve("unanswered")
    await until(injury.has_hit, "an answer was lost")
    await healed(field, injury)


async def test_garbage_instead_of_answers_is_survived(field: Field) -> None:
    controller, broker = aimed_at(field)
    kinds = sorted(GARBAGE)
    injury = await links.garble(field, controller, broker, kinds)
    await field.cluster.serve("garbled")
    await until(injury.has_hit, "garbage was answered")
    await healed(field, injury)
