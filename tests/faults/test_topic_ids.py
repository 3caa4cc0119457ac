"""Topics whose id an old tool drops without an active controller: real controllers and brokers in virtual time."""

from __future__ import annotations

import json

from controller.core.operations import Set
from tests.fakes.acls import OPEN, READ, grant_to_all
from tests.faults.hostile import LOCK, REWRITE_ID
from tests.faults.simulate.hostile import HOSTILE, LENGTHS_S
from tests.faults.simulate.member import SESSION_TIMEOUT_MS
from tests.faults.story import Stage, staged

PATH = "/brokers/topics/orders"
#: of the topics that faults are drawn for
ALPHA = "/brokers/topics/alpha"


def znode(stage: Stage, path: str = PATH) -> dict[str, object]:
    data = stage.cluster.zookeeper.read(path)
    return {} if data is None else dict(json.loads(data))


def id_of(stage: Stage, path: str = PATH) -> object:
    return znode(stage, path).get("topic_id")


def drop_the_id(stage: Stage, path: str = PATH) -> None:
    """As a tool that knows nothing of ids."""
    data = json.dumps({"version": 1, "partitions": znode(stage, path)["partitions"]}).encode()
    stage.cluster.zookeeper.commit(0, [Set(path, data, stage.cluster.zookeeper.tree.nodes[path].version)])
    assert id_of(stage, path) is None


async def orphaned(stage: Stage, *topics: tuple[int, ...]) -> int:
    """Topics of these replicas, and the controller dead; tools write before a successor loads."""
    for number, replicas in enumerate(topics):
        await stage.create("orders" if number == 0 else f"orders-{number}", {0: replicas})
    await stage.rest()
    dead = stage.controller.broker_id
    stage.kill(dead)
    return dead


async def succeeded(stage: Stage, dead: int) -> None:
    await stage.until(lambda: stage.cluster.seat_id not in (None, dead), "a successor")


def rewrite_an_id(stage: Stage, path: str) -> object:
    """As a hostile tool. Returns the id before."""
    before = id_of(stage, path)
    while id_of(stage, path) == before:
        HOSTILE[REWRITE_ID](stage.player, stage.player.random)
    return before


def strays_on(stage: Stage, broker_id: int) -> int:
    broker = stage.cluster.members[broker_id].broker
    assert broker is not None
    return len(broker.replicas.strays)


def test_a_controller_that_knows_the_id_writes_it_over_another_one() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create("alpha", {0: (1, 2, 3)})
        await stage.rest()
        before = rewrite_an_id(stage, ALPHA)
        await stage.pause(min(LENGTHS_S) / 2)
        assert id_of(stage, ALPHA) == before, "the tool has not taken it back yet"
        assert [strays_on(stage, one) for one in (1, 2, 3)] == [0, 0, 0]
        await stage.rest()

    assert staged(scene).findings == []


def test_a_tool_takes_another_id_back_before_a_controller_can_believe_it() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create("alpha", {0: (1, 2, 3)})
        await stage.rest()
        dead, before = stage.controller.broker_id, rewrite_an_id(stage, ALPHA)
        stage.kill(dead)
        await succeeded(stage, dead)
        assert id_of(stage, ALPHA) == before
        stage.start(dead)
        await stage.rest()

    assert staged(scene).findings == []


def test_a_successor_asks_brokers_for_the_id_and_writes_the_same_one() -> None:
    async def scene(stage: Stage) -> None:
        dead = await orphaned(stage, (1, 2, 3))
        before = id_of(stage)
        drop_the_id(stage)
        await succeeded(stage, dead)
        await stage.until(lambda: id_of(stage) is not None, "it has an id")
        assert id_of(stage) == before
        stage.start(dead)
        await stage.rest()
        assert id_of(stage) == before
        assert [strays_on(stage, one) for one in stage.cluster.broker_ids] == [0, 0, 0]

    assert staged(scene).findings == []


def test_an_id_that_a_term_may_not_write_is_not_forgotten_by_brokers_that_were_told_everything() -> None:
    """Brokers are not told of a topic without an id, so its replicas are set aside by then."""

    async def scene(stage: Stage) -> None:
        dead = await orphaned(stage, (1, 2, 3), (1, 2, 3))
        before = id_of(stage)
        drop_the_id(stage)
        stage.cluster.zookeeper.set_acl(PATH, grant_to_all(READ))
        stage.cluster.fault(LOCK, f"{PATH} for 9.0 s", lasts_s=9.0)
        await succeeded(stage, dead)
        lives = sorted(set(stage.cluster.broker_ids) - {dead})
        await stage.until(lambda: all(strays_on(stage, one) for one in lives), "it is set aside")
        await stage.pause(5.0)
        stage.cluster.zookeeper.set_acl(PATH, *OPEN)
        stage.start(dead)
        await stage.until(lambda: id_of(stage) is not None, "it has an id")
        await stage.rest()
        assert id_of(stage) == before
        assert [strays_on(stage, one) for one in stage.cluster.broker_ids] == [0, 0, 0]

    assert staged(scene).findings == []


def test_a_broker_that_cannot_be_reached_delays_its_own_topic_alone() -> None:
    waited_ms: list[int] = []

    async def scene(stage: Stage) -> None:
        dead = await orphaned(stage, (1, 2, 3), (1, 2, 3))
        lives = sorted(set(stage.cluster.broker_ids) - {dead})
        for one, two in (lives, lives[::-1]):
            stage.cluster.fault("cut link", one)
            stage.cluster.network.link(f"b{one}:80", f"b{two}:80").is_cut = True
        drop_the_id(stage)
        before = id_of(stage, f"{PATH}-1")
        await succeeded(stage, dead)
        since_ms = stage.cluster.zookeeper.now_ms
        await stage.until(lambda: id_of(stage) is not None, "it has an id")
        waited_ms.append(stage.cluster.zookeeper.now_ms - since_ms)
        assert id_of(stage, f"{PATH}-1") == before
        stage.cluster.heal()
        stage.start(dead)
        await stage.rest()

    assert staged(scene).findings == []
    assert SESSION_TIMEOUT_MS <= waited_ms[0] <= SESSION_TIMEOUT_MS + 2_000


def test_a_topic_made_by_an_old_tool_waits_for_no_more_than_an_answer() -> None:
    waited_ms: list[int] = []

    async def scene(stage: Stage) -> None:
        await stage.create("first", {0: (1, 2, 3)})
        since_ms = stage.cluster.zookeeper.now_ms
        stage.write(PATH, b'{"version":1,"partitions":{"0":[1,2,3]}}')
        await stage.until(lambda: stage.state("orders"), "it is led")
        waited_ms.append(stage.cluster.zookeeper.now_ms - since_ms)

    assert staged(scene).findings == []
    assert waited_ms[0] < 100
