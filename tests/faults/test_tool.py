"""The hostile tool does to a real cluster what its fault's name says, and healing ends the fault."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from random import Random

import pytest
import pytest_asyncio
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NotEmptyError

from brokerstub.lab.ports import free_port
from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.faults import hostile
from tests.faults.chaos.pulse import waits_of
from tests.faults.chaos.target_cluster import Field, Injury
from tests.faults.chaos.tool import CHILD, HANDS, READERS, log_in
from tests.faults.operations import TOPICS
from tests.integration.cluster import cluster_for, until

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]
EPOCH = "/controller_epoch"
PARENTS = {hostile.removed_parent(Random(seed)) for seed in range(200)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Field, KazooClient]]:
    """One cluster for all, and a stranger's client. Its history is not judged: chaos does that."""
    folder = tmp_path_factory.mktemp("field")
    server = ZooKeeperServer(folder / "zookeeper", free_port(), fsync=False, enforces_quotas=True)
    await server.start()
    cluster = cluster_for([server], folder)
    stranger = KazooClient(hosts=server.address + cluster.chroot, timeout=30)
    try:
        await cluster.open()
        await cluster.start()
        await asyncio.to_thread(stranger.start)
        field = Field(cluster, [server])
        await log_in(field)
        for topic in TOPICS:
            await cluster.serve(topic)
        yield field, stranger
    finally:
        await asyncio.to_thread(stranger.stop)
        stranger.close()
        await cluster.close()
        await server.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def field(ground: tuple[Field, KazooClient]) -> Field:
    field, _ = ground
    await field.restore()
    await field.cluster.whole()
    field.assignments = {topic: {0: [1, 2, 3]} for topic in TOPICS}
    field.seat_id = field.cluster.controller.broker_id
    return field


async def inflicted(field: Field, kind: str, *, seed: int = 0) -> Injury:
    injury = await HANDS[kind](field, field.cluster.running[0], Random(seed))
    assert injury is not None
    return injury


async def healed(field: Field, injury: Injury) -> None:
    await injury.heal()
    assert injury.has_hit()
    assert not field.spoiled
    assert [one.kind for one in field.faults][-1] in (injury.kind, "delete /controller")
    await field.cluster.whole()


async def does(ground: tuple[Field, KazooClient], verb: str, *arguments: object) -> KazooException | None:
    """Return ZooKeeper's refusal of a stranger's request, or None."""
    try:
        await asyncio.to_thread(getattr(ground[1], verb), *arguments)
    except KazooException as error:
        return error
    return None


@pytest.mark.parametrize("kind", [hostile.HIDE, hostile.HIDE_SEAT])
async def test_what_is_hidden_cannot_be_read(kind: str, field: Field, ground: tuple[Field, KazooClient]) -> None:
    injury = await inflicted(field, kind)
    assert isinstance(await does(ground, "get", injury.target), NoAuthError)
    assert field.faults[-1].target == injury.target
    await healed(field, injury)
    assert await does(ground, "get", injury.target) is None


@pytest.mark.parametrize("kind", [hostile.LOCK, hostile.LOCK_SEAT])
async def test_what_is_locked_cannot_be_written(kind: str, field: Field, ground: tuple[Field, KazooClient]) -> None:
    injury = await inflicted(field, kind)
    assert await does(ground, "get", injury.target) is None
    assert isinstance(await does(ground, "set", injury.target, b""), NoAuthError)
    await healed(field, injury)


async def test_a_quota_or_a_foreign_child_refuses_writes(field: Field, ground: tuple[Field, KazooClient]) -> None:
    seen = set()
    for seed in range(20):
        injury = await inflicted(field, hostile.REFUSE, seed=seed)
        has_child = await field.cluster.zookeeper("exists", f"{injury.target}/{CHILD}")
        if has_child:
            assert isinstance(await does(ground, "delete", injury.target), NotEmptyError)
        else:
            assert await does(ground, "create", f"{injury.target}/more", b"what is this?") is not None
        seen.add(bool(has_child))
        await healed(field, injury)
        if len(seen) == 2:
            return
    raise AssertionError(f"one of both was never drawn: {seen}")


async def test_a_parent_that_is_removed_is_made_again(field: Field) -> None:
    before = await _made(field)
    injury = await inflicted(field, hostile.REMOVE)

    async def is_another() -> bool:
        return injury.target not in before or (await _made(field)).get(injury.target, 0) > before[injury.target]

    await healed(field, injury)
    await until(is_another, f"{injury.target} is made again")


async def _made(field: Field) -> dict[str, int]:
    stats = {path: await field.cluster.zookeeper("exists", path) for path in PARENTS}
    return {path: stat.czxid for path, stat in stats.items() if stat is not None}


async def test_garbage_and_nothing_where_the_epoch_was(field: Field) -> None:
    before, _ = await field.cluster.zookeeper("get", EPOCH)
    injury = await inflicted(field, hostile.SPOIL_EPOCH)
    assert (await field.cluster.zookeeper("get", EPOCH))[0] in hostile.GARBAGE
    await healed(field, injury)
    assert int((await field.cluster.zookeeper("get", EPOCH))[0]) >= int(before)
    await healed(field, await inflicted(field, hostile.DELETE_EPOCH))
    assert int((await field.cluster.zookeeper("get", EPOCH))[0]) > int(before)


async def test_an_id_that_was_dropped_is_the_same_again(field: Field) -> None:
    async def ids() -> dict[str, str | None]:
        said = {topic: await field.cluster.zookeeper("get", f"/brokers/topics/{topic}") for topic in TOPICS}
        return {topic: json.loads(data).get("topic_id") for topic, (data, _) in said.items()}

    before = await ids()
    await healed(field, await inflicted(field, hostile.DROP_ID))

    async def are_the_same() -> bool:
        return await ids() == before

    await until(are_the_same, "the ids are the same")


async def test_states_that_were_erased_are_written_again(field: Field) -> None:
    before = await field.cluster.states()
    injury = await inflicted(field, hostile.ERASE_STATES, seed=3)
    await healed(field, injury)
    assert (await field.cluster.states()).keys() >= before.keys()


async def test_a_broker_that_disobeys_is_said_to_and_obeys_in_the_end(field: Field) -> None:
    seat = field.cluster.controller
    seeds = (seed for seed in range(100) if Random(seed).choice(field.broker_ids) != seat.broker_id)
    injury = await inflicted(field, hostile.DISOBEY, seed=next(seeds))
    url = f"{seat.url}/v1/topics/{injury.target.split('/')[-1]}/partitions"
    await field.cluster.http.post(url, b'{"count":3}', {"Content-Type": "application/json"}, 10_000)
    await until(injury.has_hit, "it refuses")

    async def is_noticed() -> bool:
        verdict = await seat.get("/healthz/cluster")
        return verdict is not None and "refuse" in str(verdict["reasons"])

    await until(is_noticed, "health says that it refuses")
    await healed(field, injury)


async def test_readers_in_hundreds_are_answered(field: Field) -> None:
    claims = field.cluster.order.claims()
    injury = await inflicted(field, READERS)
    await healed(field, injury)
    assert field.cluster.order.claims() == claims


async def test_of_two_hands_at_once_one_spoils_the_epoch(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second asks for the node before the first has written it, and reads what the first wrote."""
    before, _ = await field.cluster.zookeeper("get", EPOCH)
    call, may_read = field.cluster.zookeeper, asyncio.Event()

    async def late(verb: str, path: str, *arguments: object, **options: object) -> object:
        if verb == "get" and asyncio.current_task() is second:
            await may_read.wait()
        return await call(verb, path, *arguments, **options)

    monkeypatch.setattr(field.cluster, "zookeeper", late)
    second = asyncio.create_task(HANDS[hostile.SPOIL_EPOCH](field, field.cluster.running[0], Random(1)))
    await asyncio.sleep(0)
    injury = await inflicted(field, hostile.SPOIL_EPOCH)
    may_read.set()
    assert await second is None
    await healed(field, injury)
    assert int((await field.cluster.zookeeper("get", EPOCH))[0]) >= int(before)


async def test_how_long_a_process_waited_for_a_processor_is_known_of_each_thread() -> None:
    waits = waits_of(os.getpid(), whole=True)
    assert set(waits_of(os.getpid(), whole=False)) == {str(os.getpid())} <= set(waits)
    assert waits_of(1 << 30, whole=True) == {}
