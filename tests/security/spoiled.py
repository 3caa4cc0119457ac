"""A term whose ZooKeeper and whose broker 3 talk nonsense: it goes on and decides about the subjects left alone.

A real daemon on the fake ZooKeeper, with real outboxes that speak HTTP to brokers in memory. Everything that the
controller reads is spoiled again and again while it runs, and so are broker 3's answers. Subjects named `steady` are
left alone; after each few inputs another of that kind is created, led and told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, cast

import msgspec

from controller.base.config import Limits
from controller.core.codes import Code
from controller.core.events import CreateTopicAsked
from controller.kafka.protocol.access import PLAINTEXT
from controller.kafka.protocol.levels import level_for
from controller.loop.inbox import NotControllerError
from controller.seat.claim import Claim
from controller.seat.guard import TermGuard
from controller.tell.dialects import Request
from controller.tell.dialects.http import HttpDialect
from controller.tell.dialects.kafka import KafkaDialect, OwnAddress
from controller.tell.outbox import Outboxes
from controller.term.parts import OnAnswer
from controller.wire import bodies
from controller.wire.client import HttpClient, NoAnswerError
from controller.zookeeper.port import NoNodeError
from tests.loop.admin_site import (
    CHANGES,
    ELECTION,
    LOG_DIR_EVENTS,
    REASSIGN,
    Site,
    a_site,
    belief,
    leading,
)
from tests.security import samples
from tests.security.tally import Tally, hostile
from tests.support.harness import (
    Node,
    broker_json,
    settled,
    topic_json,
)

ZNODES: Final = "znodes under a term"
ANSWERS: Final = "answers to an outbox"
VICTIM: Final = "/brokers/topics/orders"
VICTIM_ID: Final = "AAAAAAAAAAAAAAAAAAAAAg"
#: the nodes that a controller reads and that are not about `steady`; a name that ends with _ gets a number
SPOILED: Final = (
    VICTIM,
    f"{VICTIM}/partitions/0/state",
    f"{VICTIM}/partitions/1/state",
    "/brokers/topics/spoiled-1",
    "/brokers/topics/spoiled-2",
    "/brokers/ids/3",
    "/brokers/ids/none",
    "/config/topics/orders",
    "/config/brokers/3",
    "/config/brokers/<default>",
    "/admin/delete_topics/orders",
    "/admin/delete_topics/spoiled-1",
    "/klamm/draining/3",
    "/klamm/failed_dirs/3",
    "/klamm/brokers/3",
    "/klamm/terms/5",
    ELECTION,
    REASSIGN,
    f"{CHANGES}/config_change_",
    f"{LOG_DIR_EVENTS}/log_dir_event_",
    "/isr_change_notification/isr_change_",
)
_STATE: Final = b'{"controller_epoch":1,"leader":3,"version":1,"leader_epoch":0,"isr":[3,1]}'
#: content that would be understood there: spoiled a little it may still be, and then it is believed
UNDERSTOOD: Final = {
    VICTIM: topic_json([3, 1], [1, 3]),
    f"{VICTIM}/partitions/0/state": _STATE,
    f"{VICTIM}/partitions/1/state": _STATE,
    "/brokers/ids/3": broker_json(3),
}
REFUSALS: Final = tuple(
    b'{"error_code":%d,"partitions":[{"topic_id":"%b","partition":0,"error_code":%d}]}' % (code, topic_id, refused)
    for topic_id in (b"id", VICTIM_ID.encode())
    for code, refused in ((0, 6), (0, 56), (-1, 3))
)
#: rightly believed: they end a term's requests, to this broker or to all
FINAL: Final = {Code.STALE_CONTROLLER_EPOCH, Code.STALE_BROKER_EPOCH}
BATCH: Final = 20
#: an outbox tries again soon, and no nonsense lasts for ever
HURRIED: Final = Limits(rpc_retry_min_ms=1, rpc_retry_max_ms=1)
PATIENCE_S: Final = 30


class Brokers:
    """Stands where the HTTP client stands. Two brokers obey; the third one answers nonsense while `left` lasts."""

    def __init__(self, random: Random, tally: Tally) -> None:
        self._random, self._tally = random, tally
        self.left = 0
        #: topics that broker 2 was told of
        self.told: set[str] = set()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], timeout_ms: int) -> tuple[int, bytes]:
        await asyncio.sleep(0)
        if ":8082/" in url and url.endswith(bodies.UPDATE_METADATA):
            self.told |= {topic.topic for topic in bodies.decode(body, bodies.StatesRequest).topics}
        if ":8083/" not in url or not self.left:
            return 200, b"{}"
        self.left -= 1
        return self._nonsense()

    def _nonsense(self) -> tuple[int, bytes]:
        said = hostile(self._random, self._random.choice(REFUSALS))
        try:
            is_final = bodies.decode(said, bodies.Answer).error_code in FINAL
        except msgspec.DecodeError:
            is_final = False
        if is_final:
            self._tally.count(ANSWERS, "not sent")
            return 200, b"{}"
        self._tally.count(ANSWERS, "sent")
        status = self._random.choice((200, 200, 200, 200, 404, 500, 999))
        if self._random.random() < 0.05:
            raise NoAnswerError("the connection ended")
        return status, said

    def open_outboxes(
        self,
        claim: Claim,
        guard: TermGuard,
        group: asyncio.TaskGroup,
        on_fenced: Callable[[str], None],
        on_answer: OnAnswer,
    ) -> Outboxes:
        return Outboxes(
            group,
            Bilingual(cast(HttpClient, self)),
            claim.broker_id,
            claim.controller_epoch,
            on_answer=on_answer,
            on_fenced=lambda: on_fenced("a broker names a later controller"),
            entropy=self._random,
            limits=HURRIED,
        )


class Bilingual(HttpDialect):
    """Encodes all requests in Kafka's protocol, too: belief has to fit into either."""

    _kafka = KafkaDialect(level_for("3.9"), OwnAddress(9, {PLAINTEXT: ("h", 1)}), check=lambda: None)

    def encode(self, request: Request) -> bytes:
        self._kafka.encode(msgspec.structs.replace(request, row_cache=None))  # cached rows are in one language
        return super().encode(request)


async def spoil(tally: Tally, random: Random, znodes: int) -> None:
    """So many znodes, and the answers to the resulting requests."""
    site, brokers = await a_site(), Brokers(random, tally)
    for path in ("/klamm", "/klamm/draining", "/klamm/failed_dirs", "/klamm/brokers", "/klamm/terms"):
        await site.write(path, b"")
    async with leading(site, open_outboxes=brokers.open_outboxes) as node:
        await site.topic("orders", [3, 1], [1, 3])
        for number in range(0, znodes, BATCH):
            await renew(site)
            brokers.left = 5
            for path in random.choices(SPOILED, k=BATCH):
                await write_spoiled(tally, random, site, path)
                await settled(random.choice((0, 20)))  # some together, some one by one
            if trouble := await trouble_of(node, site, brokers, f"steady-{number}"):
                tally.find(ZNODES, f"after {number + BATCH}: {trouble}")
                return
        await end(tally, node, site)


async def renew(site: Site) -> None:
    """Repair the nodes that the last inputs have ruined."""
    site.die(3)
    await site.come(3)
    if site.server.read(VICTIM) is None:
        await site.write(VICTIM, topic_json([3, 1], [1, 3]))
    await settled()


async def write_spoiled(tally: Tally, random: Random, site: Site, path: str) -> None:
    sample = UNDERSTOOD.get(path) if random.random() < 0.7 else None
    data = hostile(random, sample or random.choice(samples.ZNODES))
    try:
        await site.write(path, data, sequential=path.endswith("_"))
        tally.count(ZNODES, "written")
    except NoNodeError:  # its parent is gone: an input was understood, and deleted it
        tally.count(ZNODES, "not written")


async def trouble_of(node: Node, site: Site, brokers: Brokers, name: str) -> str | None:
    """Returns why the term is not as it should be: the same one, deciding and telling about a new topic."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            reply = await node.ask(CreateTopicAsked(name, assignment={0: (1, 2)}))
            while name not in brokers.told:  # noqa: ASYNC110 - no event is set for it
                await asyncio.sleep(0)
    except NotControllerError:
        return f"the term ended: {node.held.history()}"
    except TimeoutError:
        return f"{name} was not led and told in time"
    if reply.code is not Code.NONE or site.leader(name) != 1:
        return f"{name}: {reply.code.name} {reply.detail}"
    if node.handle.controller_epoch != 1:
        return "there was a new term"
    return None


async def end(tally: Tally, node: Node, site: Site) -> None:
    """All that is led by broker 1 and was not spoiled goes to broker 2 when that dies."""
    steady = [name for name in belief(node).topics if name.startswith("steady")]
    site.die(1)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while any(site.leader(name) != 2 for name in steady):  # noqa: ASYNC110 - no event is set for it
                await asyncio.sleep(0)
    except TimeoutError:
        tally.find(ZNODES, "a broker's death moved no leadership")
    for _ in belief(node).parked:
        tally.count(ZNODES, "parked")
