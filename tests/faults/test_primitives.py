"""Every primitive does what it says, on real processes: seen from the outside, and gone when it is healed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from brokerstub.lab.http_proxy import GARBAGE
from brokerstub.lab.proxy import Direction
from brokerstub.lab.zookeeper import Ensemble, ZooKeeperServer, free_port
from tests.faults.chaos import links, primitives
from tests.faults.chaos.field import Field, Injury, is_stopped
from tests.integration.cluster import SESSION_TIMEOUT_MS, TICK_MS, Broker, a_cluster, now_ms, until

MULTI = 14
HOUR_MS = 3_600_000
SILENT_S = 2.0  # how long nobody must answer

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def field(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Field]:
    """One cluster for all, on a ZooKeeper of its own; each test leaves it whole."""
    folder = tmp_path_factory.mktemp("field")
    server = ZooKeeperServer(folder / "zookeeper", free_port(), fsync=False)
    await server.start()
    try:
        async with a_cluster([server], folder) as cluster:
            await cluster.start(1)
            await cluster.start()
            await cluster.serve("orders")
            await cluster.whole()
            cluster.is_judged = False  # lines are lost on purpose
            yield Field(cluster, [server])
    finally:
        await server.stop()


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def _healed_before(field: Field) -> None:
    """What another test left, when it failed, is not this one's."""
    await field.restore()
    for broker in field.cluster.running:
        if broker.log("journal.failed"):
            await broker.stop()
            (broker.folder / "broker.log").unlink()
            await broker.start()
    await field.cluster.whole()


def aimed_at(field: Field) -> tuple[Broker, Broker]:
    """The active controller, and another."""
    controller = field.cluster.controller
    return controller, next(one for one in field.cluster.running if one is not controller)


async def healed(field: Field, injury: Injury) -> None:
    await injury.heal()
    assert injury.has_hit(), f"{injury.kind} {injury.target} missed"
    await field.cluster.whole()


async def begun_anew(field: Field, broker: Broker) -> None:
    """Lines that were lost are not forgotten before the process is another."""
    await broker.stop()
    await broker.start()
    await field.cluster.whole()


def sessions_of(field: Field, broker: Broker) -> list[int]:
    return [one.session for one in field.cluster.order.registrations(broker.broker_id)]


async def test_killed_it_is_gone_and_started_again_it_has_lost_its_disk_if_it_was_to(field: Field) -> None:
    _, broker = aimed_at(field)
    injury = await primitives.kill(field, broker, loses_disk=True)
    assert (broker.state, (broker.folder / "replicas.jsonl").exists()) == ("killed", False)
    await healed(field, injury)
    assert len(sessions_of(field, broker)) == 2


async def test_bounced_it_is_another_process_within_a_second_or_two(field: Field) -> None:
    _, broker = aimed_at(field)
    pid = broker.row.pid
    injury = await primitives.bounce(field, broker)
    assert broker.row.pid not in (None, pid)
    await healed(field, injury)


async def test_frozen_it_does_nothing_and_its_session_expires(field: Field) -> None:
    _, broker = aimed_at(field)
    session = sessions_of(field, broker)[-1]
    injury = await primitives.freeze(field, broker)
    assert is_stopped(broker.row.pid)
    await until(lambda: field.cluster.order.end_of(session), "its session expires")
    await healed(field, injury)
    assert not is_stopped(broker.row.pid)


async def test_starved_it_stands_still_most_of_the_time(field: Field) -> None:
    _, broker = aimed_at(field)
    injury = await primitives.starve(field, broker)
    states = [is_stopped(broker.row.pid)]
    end = time.monotonic() + 3
    while time.monotonic() < end:
        await asyncio.sleep(0.01)
        states.append(is_stopped(broker.row.pid))
    assert sum(states) > len(states) / 2
    assert not all(states)
    await healed(field, injury)


async def test_expired_its_session_ends_at_once_and_it_registers_under_another(field: Field) -> None:
    controller, _ = aimed_at(field)
    session, begun_ms = field.session_of(controller).session_id, now_ms()
    injury = await primitives.expire(field, controller)
    end = field.cluster.order.end_of(session)
    assert end is not None
    assert end.at_ms - begun_ms < SESSION_TIMEOUT_MS / 2
    await healed(field, injury)
    assert sessions_of(field, controller)[-1] != session


async def test_without_files_it_takes_no_connection_and_lives_on(field: Field) -> None:
    _, broker = aimed_at(field)
    pid, injury = broker.row.pid, await primitives.exhaust_files(field, broker)
    crowd = [await asyncio.open_connection("127.0.0.1", broker.port) for _ in range(3)]
    for _, writer in crowd:
        writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with pytest.raises(TimeoutError):  # the first may be let in, the last is not
        await asyncio.wait_for(crowd[-1][0].read(1), SILENT_S)
    await injury.heal()
    assert await crowd[-1][0].read(1) == b"H"
    for _, writer in crowd:
        writer.close()
    assert broker.row.pid == pid
    await begun_anew(field, broker)


async def test_its_clock_jumps_and_back(field: Field) -> None:
    controller, _ = aimed_at(field)
    injury = await primitives.jump_clock(field, controller, HOUR_MS)

    async def is_ahead() -> bool:
        await field.cluster.serve(f"clock-{time.monotonic_ns()}")
        return any(line["at_ms"] > now_ms() + HOUR_MS / 2 for line in controller.rpcs())

    await until(is_ahead, "a line from the future")
    await healed(field, injury)


async def test_its_journal_cannot_be_written_for_a_while(field: Field) -> None:
    controller, _ = aimed_at(field)
    injury = await primitives.block_journal(field, controller)
    await field.cluster.serve("unrecorded")
    await until(lambda: controller.log("journal.failed"), "lines are lost")
    await injury.heal()
    await field.cluster.serve("recorded")
    await until(lambda: controller.log("journal.recovered"), "lines are kept")
    await until(lambda: any(line.get("topic") == "recorded" for line in controller.lines()), "these, too")
    await begun_anew(field, controller)


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


async def test_an_operator_deletes_the_seat(field: Field) -> None:
    claim = field.cluster.order.claims()[-1]
    injury = await primitives.edit(field, "/controller", None)
    assert (await field.cluster.claim_after(claim)).controller_epoch == claim.controller_epoch + 1
    await healed(field, injury)


async def test_all_of_zookeeper_is_away_for_longer_than_a_session(field: Field) -> None:
    injury = await primitives.restart_zookeeper(field, field.servers)
    begun = time.monotonic()
    await until(lambda: time.monotonic() - begun > (SESSION_TIMEOUT_MS + TICK_MS) / 1000, "time passes")
    assert field.servers[0].pid is None
    await healed(field, injury)


async def test_zookeeper_stands_still(field: Field) -> None:
    injury = await primitives.freeze_zookeeper(field, field.servers[0])
    assert await field.servers[0].ask("ruok") == ""
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
    assert (await field.cluster.http.get(f"http://{way.address}/livez", headers, 10_000))[0] == 200
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


async def test_the_leader_of_three_servers_is_restarted_and_another_leads(tmp_path: Path) -> None:
    ensemble = Ensemble(tmp_path / "zookeeper", fsync=False)
    await ensemble.start()
    try:
        async with a_cluster(ensemble.servers, tmp_path) as cluster:
            await cluster.start()
            field = Field(cluster, ensemble.servers)
            leader = await field.zookeeper_leader()
            assert leader is not None
            injury = await primitives.restart_zookeeper(field, [leader])
            assert await field.zookeeper_leader() is not leader
            await cluster.serve("meanwhile")
            await healed(field, injury)
            await leader.serving()
    finally:
        await ensemble.stop()
