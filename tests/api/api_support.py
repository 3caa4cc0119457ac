"""A cluster as plain values behind the real API, for tests of the API and of the command."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import cast

import aiohttp
import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from controller.api.ports import (
    ControllerHandle,
    NotControllerError,
    Reply,
    Term,
    TermView,
    TopicView,
)
from controller.api.serve.app import build_app
from controller.api.v1.records import LogsView
from controller.base.bell import Bell
from controller.base.config import (
    LIMITS,
    BrokerConfig,
    Limits,
    broker_config_for,
)
from controller.core.belief.cluster import Cluster
from controller.core.events import CreateTopicAsked, Event
from controller.core.model import Broker
from controller.core.project.lines import Line
from controller.loop.inbox import REPLY_TO, ChangeReply
from controller.statelog.journal import RecentLines
from controller.statelog.metrics import Meters
from controller.tell.outbox import OutboxStatus
from controller.wire.bodies import BrokerEntry, PartitionRow

CONFIG = broker_config_for({"broker.id": "1", "zookeeper.connect": "127.0.0.1:1", "log.dirs": "logs"})


def a_row(partition: int, leader: int, isr: Sequence[int], replicas: Sequence[int], **more: object) -> PartitionRow:
    row = PartitionRow(partition, 4, leader, 7, tuple(isr), 9, tuple(replicas), (), (), (), False, 0)
    return msgspec.structs.replace(row, **more)


def a_broker(broker_id: int, state: str = "live", port: int | None = None) -> BrokerEntry:
    address = f"HTTP://127.0.0.1:{8080 + broker_id if port is None else port}"
    return BrokerEntry(broker_id, 100 + broker_id, state, None, (address,))


def a_topic(name: str, *rows: PartitionRow) -> TopicView:
    return TopicView(name, f"id-of-{name}", rows)


class View:
    """A ClusterView made of plain values."""

    def __init__(self, *topics: TopicView, brokers: Sequence[BrokerEntry] = (), own_id: int = 1) -> None:
        self.cluster_id = "cluster-of-tests"
        self.own_broker_id = own_id
        self.controller_id = 1
        self.controller_epoch = 4
        self.metadata_version = 0
        self.changes = Bell()
        self.brokers: Sequence[BrokerEntry] = brokers or [a_broker(1), a_broker(2), a_broker(3)]
        self.by_name = {topic.topic: topic for topic in topics}
        self.topics_read = 0
        self.is_led_by_kafka = False

    @property
    def is_told(self) -> bool:
        return any(broker.id == self.own_broker_id and broker.state != "gone" for broker in self.brokers)

    @property
    def topic_names(self) -> Sequence[str]:
        return sorted(self.by_name)

    @property
    def topics_with_new(self) -> Sequence[str]:
        return ()

    def topic(self, name: str) -> TopicView | None:
        self.topics_read += 1
        return self.by_name.get(name)

    def topics(self) -> Iterator[TopicView]:
        return iter([self.by_name[name] for name in self.topic_names])

    def put(self, topic: TopicView) -> None:
        self.by_name[topic.topic] = topic
        self.metadata_version += 1
        self.changes.ring()


def done(event: Event) -> Reply:
    """Returns the reply to an event that was carried out."""
    return REPLY_TO.get(type(event), Reply)()


class FakeHandle:
    """The controller of this process, active unless told otherwise; returns the reply `answer` to each event."""

    def __init__(self, answer: Callable[[Event], Reply] = done) -> None:
        self.answer = answer
        self.asked: list[Event] = []
        self.is_active = True
        self.is_registered = True
        self.controller_epoch: int | None = 4
        self.phase = "active"
        self.since_ms = 1_700_000_000_123
        self.age_ms = 90_061_000
        self.seat: tuple[int, int] | None = (1, 77)
        self.seat_trouble: str | None = None
        self.cluster: Cluster | None = None
        self.terms: list[TermView] = []
        self.lines: list[Line] = []
        self.meters = Meters()
        self.lines_lost = self.lines_lost_lately = 0
        self.inbox_depth = 0
        self.foreign_brokers: dict[int, Broker] = {}
        self.unread: dict[str, str] = {}
        self.owed: dict[int, OutboxStatus] = {}
        self.recent_lines: RecentLines | None = RecentLines(4)
        self.seat_changes = Bell()

    @property
    def term(self) -> Term | None:
        """It is the term, too."""
        return None if self.controller_epoch is None or self.recent_lines is None else cast(Term, self)

    def outbox_status(self) -> dict[int, OutboxStatus]:
        return self.owed

    def history(self) -> Sequence[TermView]:
        return self.terms

    def stand_by(self, seat: tuple[int, int] | None) -> None:
        self.is_active, self.controller_epoch = False, None
        self.phase, self.seat = "standby", seat

    async def ask(self, request: Event) -> Reply:
        if not self.is_active:
            raise NotControllerError
        self.asked.append(request)
        return self.answer(request)


def creating(view: View) -> Callable[[Event], Reply]:
    """Returns a controller that creates each topic that is asked for, at once."""

    def answer(event: Event) -> Reply:
        assert isinstance(event, CreateTopicAsked)
        if event.name in view.by_name:
            return ChangeReply(detail="exists", has_changed=False)
        factor = range(1, 1 + (event.replication_factor or 0))
        assignment = event.assignment or dict.fromkeys(range(event.partitions or 0), tuple(factor))
        rows = [a_row(number, ids[0], ids, ids) for number, ids in assignment.items()]
        view.put(a_topic(event.name, *rows))
        return ChangeReply()

    return answer


def reserved() -> socket.socket:
    """A socket on a free port of loopback: its port is known before the application is."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    return bound


def address_of(bound: socket.socket) -> str:
    return f"127.0.0.1:{bound.getsockname()[1]}"


def routes_of(app: web.Application) -> set[tuple[str, str]]:
    """Method and path of all that is served."""
    routes = ((route.method, route.resource) for route in app.router.routes())
    return {(method, resource.canonical) for method, resource in routes if resource is not None and method != "HEAD"}


@asynccontextmanager
async def served(
    view: View,
    handle: ControllerHandle,
    *,
    bound: socket.socket | None = None,
    limits: Limits = LIMITS,
    config: BrokerConfig = CONFIG,
    extra: Sequence[Middleware] = (),
    shutdown_timeout_s: float = 1,
    logs: LogsView | None = None,
) -> AsyncIterator[str]:
    """The API on loopback, behind `extra`; yields its address."""
    bound = bound or reserved()
    address = address_of(bound)
    app = build_app(view, handle, listeners=[address], limits=limits, config=config, logs=logs)
    app.middlewares[:0] = extra
    runner = web.AppRunner(app, shutdown_timeout=shutdown_timeout_s)
    await runner.setup()
    await web.SockSite(runner, bound).start()
    try:
        yield f"http://{address}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def asking(
    view: View,
    handle: ControllerHandle,
    limits: Limits = LIMITS,
    config: BrokerConfig = CONFIG,
    logs: LogsView | None = None,
) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the API."""
    async with (
        served(view, handle, limits=limits, config=config, logs=logs) as url,
        aiohttp.ClientSession(url) as client,
    ):
        yield client


@contextmanager
def served_in_thread(*processes: tuple[View, ControllerHandle, socket.socket]) -> Iterator[list[str]]:
    """Several broker processes' APIs, beside a test that must not run in their loop; yields their addresses."""
    started, stop, urls = threading.Event(), asyncio.Event(), []
    loop = asyncio.new_event_loop()

    async def serve(left: Sequence[tuple[View, ControllerHandle, socket.socket]]) -> None:
        if not left:
            started.set()
            await stop.wait()
            return
        view, handle, bound = left[0]
        async with served(view, handle, bound=bound) as url:
            urls.append(url)
            await serve(left[1:])

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve(processes)))
    thread.start()
    try:
        assert started.wait(10)
        yield urls
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()
