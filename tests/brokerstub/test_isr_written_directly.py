"""Below protocol level 2.7 a leader writes the state znode itself, and can undo nothing by it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from brokerstub.alter_partition import Attempt
from brokerstub.metadata import MetadataCache
from brokerstub.notifications import DirectIsrWriter, Notifications, writes_directly
from controller.base.config import LIMITS, BrokerConfig, ConfigError
from controller.core.codes import Code
from controller.core.operations import Delete, Set
from controller.wire.bodies import AlteredRow
from controller.wire.client import HttpClient
from controller.wire.signing import Incarnation
from tests.brokerstub.leader import Leader
from tests.brokerstub.support import row
from tests.fakes.acls import ALL, READ, grant_to_all
from tests.fakes.zookeeper import FakeClient, FakeZooKeeper

PATH = "/brokers/topics/orders/partitions/0/state"


@pytest.mark.parametrize(
    ("version", "is_direct"),
    [
        *((text, True) for text in ("2.6", "2.6-IV0", "2.7-IV0", "2.7-IV1", "0.10.2-IV0", "1.0", "2.4.1")),
        *((text, False) for text in ("2.7", "2.7-IV2", "2.8", "3.9", "3.9-IV0", "3.10", "3.9.1")),
    ],
)
def test_alter_partition_came_with_2_7_iv2(version: str, is_direct: bool) -> None:
    assert writes_directly(version) is is_direct


def test_a_protocol_version_that_makes_no_sense_is_explained() -> None:
    with pytest.raises(ConfigError, match="write it like 3"):
        writes_directly("newest")


class Scene:
    """Broker 1 leads partition 0 of `orders` with epoch 3; follower 2 has been silent for too long."""

    def __init__(self, zk: FakeZooKeeper, client: FakeClient, http: HttpClient) -> None:
        self.zk, self.client = zk, client
        self.leader = Leader()
        self.leader.tell(row(epoch=3, version=5))
        self.leader.fetched(3, (0, 3))
        self.leader.pass_time(10_000)
        self.leader.fetched(3, sequence=1)
        self.leader.pass_time(1)
        config = BrokerConfig(broker_id=1, zookeeper_connect="", log_dirs="d")
        self.notifications = Notifications(config, lambda: 0)
        self.notifications.begin(client)
        self.asker = DirectIsrWriter(
            http,
            self.leader.isr,
            MetadataCache("cluster", 1),
            replicas=self.leader.replicas,
            notifications=self.notifications,
            clock_ms=lambda: self.leader.now_ms,
            entropy=Random(1),
            tick_ms=1,
            limits=LIMITS,
        )
        self.write([1, 2, 3])
        for _ in range(5):
            self.set([1, 2, 3])

    def write(self, isr: list[int]) -> None:
        self.zk.seed({PATH: self.data(isr)})

    def data(self, isr: list[int], **more: int) -> bytes:
        state = {"controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 3, "isr": isr}
        return msgspec.json.encode(state | more)

    def set(self, isr: list[int], **more: int) -> None:
        """Another client writes."""

        self.zk.commit(0, [Set(PATH, self.data(isr, **more), -1)])

    async def ask(self) -> list[AlteredRow] | None:
        question = self.leader.ask()
        assert question is not None
        answer = await self.asker._ask(question, Attempt(question, 100, 1, Incarnation(9, None), None))
        return None if answer is None else [one for topic in answer.topics for one in topic.partitions]

    @property
    def state(self) -> tuple[Any, int]:
        return msgspec.json.decode(self.zk.read(PATH) or b""), self.zk.tree.nodes[PATH].stat.version

    @property
    def announced(self) -> list[tuple[str, int]]:
        return list(self.notifications._isr_changes)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    zk, http = FakeZooKeeper(), HttpClient()
    yield Scene(zk, await zk.connect(), http)
    await http.close()


async def test_the_isr_is_written_with_the_controller_epoch_that_made_it_leader(scene: Scene) -> None:
    scene.zk.seed({"/controller_epoch": b"9"})
    assert await scene.ask() == [AlteredRow(0, Code.NONE, 1, 3, (1, 3), 6, 0)]
    assert scene.state == (
        {"controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 3, "isr": [1, 3]},
        6,
    )
    assert scene.announced == [("orders", 0)]


@pytest.mark.parametrize("fault", ["lose_next_answer", "lose_next_request"])
async def test_a_write_without_an_answer_is_found_or_made_again_once(scene: Scene, fault: str) -> None:
    getattr(scene.client, fault)()
    assert await scene.ask() == [AlteredRow(0, Code.NONE, 1, 3, (1, 3), 6, 0)]
    assert (scene.state[1], scene.announced) == (6, [("orders", 0)])


async def test_a_state_written_elsewhere_under_this_leadership_is_adopted_not_overwritten(scene: Scene) -> None:
    scene.set([1, 2])
    answered = await scene.ask()
    assert answered == [AlteredRow(0, Code.INVALID_UPDATE_VERSION, 1, 3, (1, 2), 6, 0)]
    assert (scene.state[0]["isr"], scene.announced) == ([1, 2], [])


@pytest.mark.parametrize("leader", [2, 1])
async def test_a_later_leadership_is_left_to_the_controller_to_tell(scene: Scene, leader: int) -> None:
    scene.set([2, 1, 3], leader=leader, leader_epoch=4)
    assert [one for one in await scene.ask() or [] if one.leader_epoch == 3] == []
    assert (scene.state[0]["leader_epoch"], scene.announced) == (4, [])


async def test_a_state_that_is_gone_or_makes_no_sense_is_not_made_anew(scene: Scene) -> None:

    scene.zk.commit(0, [Set(PATH, b"{", -1)])
    assert await scene.ask() == []
    scene.zk.commit(0, [Delete(PATH, -1)])
    assert await scene.ask() == []
    assert scene.zk.read(PATH) is None


async def test_a_lost_session_leaves_the_question_unanswered(scene: Scene) -> None:
    scene.zk.expire(scene.client)
    assert await scene.ask() is None
    scene.notifications.begin(await scene.zk.connect())
    assert await scene.ask() == [AlteredRow(0, Code.NONE, 1, 3, (1, 3), 6, 0)]


@pytest.mark.parametrize("perms", [READ, 0], ids=["not to be written", "not to be read either"])
async def test_a_state_that_it_may_not_write_is_logged_once_and_ends_no_broker(scene: Scene, perms: int) -> None:
    scene.zk.set_acl(PATH, grant_to_all(perms))
    with capture_logs() as lines:
        for _ in range(3):
            assert await scene.ask() == []
    assert [line["path"] for line in lines if line["event"] == "isr_write.refused"] == [PATH]
    scene.zk.set_acl(PATH, grant_to_all(ALL))
    assert await scene.ask() == [AlteredRow(0, Code.NONE, 1, 3, (1, 3), 6, 0)]
