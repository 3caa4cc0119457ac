"""Which right each path needs, written by hand; and a process that is asked for each of them by each role."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import aiohttp
from aiohttp import web

from brokerstub.lab.ports import free_port
from brokerstub.server import BrokerServer
from controller.api.middleware.access import (
    AUTHENTICATION_FAILED,
    AUTHENTICATION_REQUIRED,
    NOT_ALLOWED,
    Access,
)
from controller.api.middleware.connections import BoundedListener, Connections
from controller.api.ports import NotControllerError
from controller.api.serve.app import build_app
from controller.base.config import Limits
from controller.core.belief.cluster import Cluster
from controller.kafka.takeover import Preflight, TakeoverApi
from controller.security.secrets import Secrets
from controller.statelog.journal import RecentLines
from controller.term.controller import Handle
from controller.wire import bodies
from controller.wire.client import HttpClient
from controller.wire.signing import Incarnation, Signer
from tests.api.api_support import CONFIG
from tests.brokerstub.cluster import Node
from tests.builders import a_cluster
from tests.security.test_secrets import ADMIN, READER, RPC
from tests.support.deciding_support import BelievedView, DecidingHandle

OPEN, READ, ADMIN_ONLY, BROKER = Access.OPEN, Access.READ, Access.ADMIN, Access.BROKER
TABLE: Final[Mapping[tuple[str, str], Access]] = {
    ("GET", "/livez"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/docs"): OPEN,
    ("GET", "/docs/{name}"): OPEN,
    ("GET", "/"): OPEN,
    ("GET", "/dashboard/{name}"): OPEN,
    ("GET", "/healthz/cluster"): READ,
    ("GET", "/metrics"): READ,
    ("GET", "/v1/cluster"): READ,
    ("GET", "/v1/controller"): READ,
    ("GET", "/v1/controller/history"): READ,
    ("GET", "/v1/reports/latest"): READ,
    ("GET", "/v1/aggregates"): READ,
    ("GET", "/v1/brokers"): READ,
    ("GET", "/v1/brokers/{id}"): READ,
    ("GET", "/v1/brokers/{broker}/drain"): READ,
    ("GET", "/v1/brokers/{broker}/config"): READ,
    ("GET", "/v1/cluster/config"): READ,
    ("GET", "/v1/topics"): READ,
    ("GET", "/v1/topics/{topic}"): READ,
    ("GET", "/v1/topics/{topic}/config"): READ,
    ("GET", "/v1/topics/{topic}/partitions"): READ,
    ("GET", "/v1/partitions"): READ,
    ("GET", "/v1/partitions/{topic}/{partition}/log"): READ,
    ("GET", "/v1/partitions/{topic}/{partition}/story"): READ,
    ("GET", "/v1/matrix"): READ,
    ("GET", "/v1/deletions"): READ,
    ("GET", "/v1/reassignments"): READ,
    ("GET", "/v1/events"): READ,
    ("GET", "/v1/lab"): READ,
    ("POST", "/v1/what-if"): READ,
    ("POST", "/v1/topics"): ADMIN_ONLY,
    ("DELETE", "/v1/topics/{topic}"): ADMIN_ONLY,
    ("POST", "/v1/topics/{topic}/partitions"): ADMIN_ONLY,
    ("PATCH", "/v1/topics/{topic}/config"): ADMIN_ONLY,
    ("PATCH", "/v1/brokers/{broker}/config"): ADMIN_ONLY,
    ("PATCH", "/v1/cluster/config"): ADMIN_ONLY,
    ("POST", "/v1/reassignments"): ADMIN_ONLY,
    ("DELETE", "/v1/reassignments/{topic}/{partition}"): ADMIN_ONLY,
    ("POST", "/v1/elections"): ADMIN_ONLY,
    ("POST", "/v1/brokers/{broker}/drain"): ADMIN_ONLY,
    ("DELETE", "/v1/brokers/{broker}/drain"): ADMIN_ONLY,
    ("DELETE", "/v1/brokers/{id}"): ADMIN_ONLY,
    ("POST", "/v1/lab/{verb}"): ADMIN_ONLY,
    # of a controller for real brokers
    ("POST", "/v1/takeover"): ADMIN_ONLY,
    ("POST", "/v1/handback"): ADMIN_ONLY,
    ("POST", bodies.LEADER_AND_ISR): BROKER,
    ("POST", bodies.UPDATE_METADATA): BROKER,
    ("POST", bodies.STOP_REPLICA): BROKER,
    ("POST", bodies.DESCRIBE_TOPICS): BROKER,
    ("POST", bodies.DESCRIBE_LOG): BROKER,
    ("POST", bodies.ALTER_PARTITION): BROKER,
    ("POST", bodies.CONTROLLED_SHUTDOWN): BROKER,
    ("POST", bodies.PRODUCER_IDS): BROKER,
    ("POST", bodies.FETCH): BROKER,
}
#: of a lab's supervisor
LAB_TABLE: Final[Mapping[tuple[str, str], Access]] = {
    ("GET", "/lab/v1/ps"): READ,
    ("POST", "/lab/v1/down"): ADMIN_ONLY,
    ("POST", "/lab/v1/kill"): ADMIN_ONLY,
    ("POST", "/lab/v1/stop"): ADMIN_ONLY,
    ("POST", "/lab/v1/start"): ADMIN_ONLY,
    ("POST", "/lab/v1/freeze"): ADMIN_ONLY,
    ("POST", "/lab/v1/thaw"): ADMIN_ONLY,
    ("POST", "/lab/v1/cut"): ADMIN_ONLY,
    ("POST", "/lab/v1/heal"): ADMIN_ONLY,
    ("POST", "/lab/v1/break-disk"): ADMIN_ONLY,
    ("POST", "/lab/v1/mend-disk"): ADMIN_ONLY,
    ("POST", "/lab/v1/hold"): ADMIN_ONLY,
    ("POST", "/lab/v1/release"): ADMIN_ONLY,
    ("POST", "/lab/v1/trouble"): ADMIN_ONLY,
}
ROLES: Final = ("none", "wrong", "reader", "admin", "broker")
#: the result for each role: None when it is let in, else the code of the refusal
GIVES: Final[Mapping[Access, Mapping[str, str | None]]] = {
    OPEN: dict.fromkeys(ROLES),
    READ: {
        "none": AUTHENTICATION_REQUIRED,
        "wrong": AUTHENTICATION_FAILED,
        "reader": None,
        "admin": None,
        "broker": AUTHENTICATION_FAILED,
    },
    ADMIN_ONLY: {
        "none": AUTHENTICATION_REQUIRED,
        "wrong": AUTHENTICATION_FAILED,
        "reader": NOT_ALLOWED,
        "admin": None,
        "broker": AUTHENTICATION_FAILED,
    },
    BROKER: {
        "none": AUTHENTICATION_FAILED,
        "wrong": AUTHENTICATION_FAILED,
        "reader": AUTHENTICATION_FAILED,
        "admin": AUTHENTICATION_FAILED,
        "broker": None,
    },
}
REFUSALS: Final = {AUTHENTICATION_REQUIRED: 401, AUTHENTICATION_FAILED: 401, NOT_ALLOWED: 403}
PARTS: Final = {"name": "nothing", "id": "1", "broker": "1", "topic": "orders", "partition": "0", "verb": "kill"}
#: so that its answer ends
ENDING: Final = "/v1/events?follow=false"
#: a table is walked through faster than anybody may change a cluster
UNHURRIED: Final = Limits(changes_at_once=10_000_000)
OWN: Final = Incarnation(1, 100)


def target_of(path: str) -> str:
    """Return the URL for a path of the API."""
    return ENDING if path == "/v1/events" else path.format(**PARTS)


class Asker:
    """Asks a served process by any path, as any role."""

    def __init__(self, url: str, client: aiohttp.ClientSession) -> None:
        self.url, self.client = url, client
        self.signer, self.wrong_signer = Signer([RPC]), Signer(["another-secret-of-the-tests"])

    async def ask(self, method: str, path: str, role: str, body: bytes = b"{}") -> tuple[int, str | None]:
        headers = {"Content-Type": "application/json"}
        match role:
            case "wrong":
                headers["Authorization"] = "Bearer no-token-of-this-cluster"
            case "reader" | "admin":
                headers["Authorization"] = f"Bearer {READER if role == 'reader' else ADMIN}"
            case "broker":
                headers |= self.signed(method, path, body)
        async with self.client.request(method, self.url + path, headers=headers, data=body) as response:
            is_problem = response.content_type == "application/problem+json"
            return response.status, (await response.json(content_type=None))["code"] if is_problem else None

    def signed(self, method: str, path: str, body: bytes = b"{}", **more: Any) -> dict[str, str]:
        heads = {bodies.CONTROLLER_ID: "2", bodies.CONTROLLER_EPOCH: "7", bodies.EVENT_ID: "7-1", **more}
        return self.signer.headers_for(
            method, self.url + path, body, sender=Incarnation(2, 200), receiver=OWN, more=heads
        )


class SeatHandle(DecidingHandle):
    """Of a controller that may be told to take the seat and to give it back."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.moves: list[str] = []
        self.recent_lines = RecentLines(cluster.controller_epoch)

    async def take_over(self) -> int:
        self.moves.append("take over")
        return self.believed.controller_epoch + 1

    async def hand_back(self) -> None:
        self.moves.append("hand back")


class Process(Asker):
    """A broker's API and RPCs, an active controller in it, and the requests to it."""

    def __init__(
        self, url: str, app: web.Application, handle: SeatHandle, node: Node, client: aiohttp.ClientSession
    ) -> None:
        super().__init__(url, client)
        self.app, self.handle, self.node = app, handle, node

    @property
    def state(self) -> tuple[object, ...]:
        """Belief, the znodes behind it, the moves of the seat, and the broker's lines."""
        belief = pickle.dumps(vars(self.handle.believed))
        return belief, dict(self.handle.zookeeper.nodes), len(self.handle.moves), len(self.node.lines)

    @property
    def changes(self) -> tuple[int, ...]:
        """How much it was made to do."""
        return len(self.handle.asked), len(self.handle.moves), len(self.node.lines)


async def nothing_found() -> Preflight:
    """The obstacles to a takeover."""
    raise NotControllerError("no session with ZooKeeper now")


@asynccontextmanager
async def a_process(tmp_path: Path, secrets: Secrets) -> AsyncIterator[Process]:
    http, cluster, port = HttpClient(), a_cluster(orders=[[1, 2]]), free_port()
    handle, node = SeatHandle(cluster), Node(1, tmp_path, http, lambda: 0)
    node.broker.begin(100)
    app = build_app(
        BelievedView(cluster),
        handle,
        listeners=[f"127.0.0.1:{port}"],
        config=CONFIG,
        secrets=secrets,
        limits=UNHURRIED,
        own=lambda: node.broker.incarnation,
    )
    BrokerServer(node.broker, node.lines.extend, lambda: 0).add_routes(app)
    app.add_routes(TakeoverApi(cast(Handle, handle), nothing_found).routes())
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await BoundedListener(runner, Connections(), "127.0.0.1", port).start()
    async with aiohttp.ClientSession() as client:
        yield Process(f"http://127.0.0.1:{port}", app, handle, node, client)
    await runner.cleanup()
    await http.close()
    node.broker.close()
