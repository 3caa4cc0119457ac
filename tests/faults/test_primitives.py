"""Every primitive has its effect on real processes and servers: seen from outside, and gone when it is healed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from brokerstub.lab.zookeeper import Ensemble
from tests.faults.chaos import primitives
from tests.faults.chaos.target_cluster import Field, is_stopped
from tests.faults.conftest import aimed_at, begun_anew, healed, sessions_of
from tests.integration.cluster import SESSION_TIMEOUT_MS, TICK_MS, Broker, a_cluster, now_ms
from tests.waiting import until

HOUR_MS = 3_600_000
SILENT_S = 2.0  # how long no answer must come
CROWD_MAX = 20

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]


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
    session = field.session_of(controller).session_id
    injury = await primitives.expire(field, controller)
    end = field.cluster.order.end_of(session)
    assert end is not None
    assert end.is_asked_for, "it was ended, it did not run out"
    await healed(field, injury)
    assert sessions_of(field, controller)[-1] != session


async def a_visitor(broker: Broker) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connected, as far as the kernel goes, and has asked."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return reader, writer


async def is_answered(visitor: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bool:
    try:
        return await asyncio.wait_for(visitor[0].read(1), SILENT_S) == b"H"
    except TimeoutError:
        return False


async def test_without_files_it_takes_no_connection_and_lives_on(field: Field) -> None:
    _, broker = aimed_at(field)
    pid, injury = broker.row.pid, await primitives.exhaust_files(field, broker)
    crowd = [await a_visitor(broker)]
    while await is_answered(crowd[-1]) or not broker.log("connections.refused"):
        assert len(crowd) < CROWD_MAX  # some are let in: counted connections may be closed by now
        crowd.append(await a_visitor(broker))
    await injury.heal()
    assert await crowd[-1][0].read(1) == b"H"
    for _, writer in crowd:
        writer.close()
    assert injury.has_hit()
    assert broker.row.pid == pid
    assert 1 <= len(broker.log("connections.refused")) <= 5  # not hundreds a second
    await begun_anew(field, broker)


async def test_a_log_directory_fails_and_is_mended(field: Field) -> None:
    _, broker = aimed_at(field)
    injury = await primitives.break_disk(field, broker)
    await until(injury.has_hit, "it notices")
    assert broker.state == "running"
    await healed(field, injury)


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
