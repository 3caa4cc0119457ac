"""Clients of a real cluster: they send operations as requests to the API of any broker, with a time-out, and record the
outcomes.

An outcome that a client cannot know is `unknown`. An answer that no client should ever get (5xx but 503 and 504) is
kept as a bug.
"""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any, Final

from kazoo.exceptions import KazooException, NodeExistsError

from brokerstub.lab.settings import lab_secrets
from controller.core import events
from controller.core.events import Event
from controller.wire.client import ExchangeError, UnreachableError
from tests.faults.chaos.schedule import Ask
from tests.faults.chaos.target_cluster import Field, elapse
from tests.faults.checker.history import Call, json_of
from tests.faults.operations import OPERATIONS
from tests.integration.cluster import now_ms

TIMEOUT_MS: Final = 10_000
HEADERS: Final = {"Content-Type": "application/json", "Klamm-Forward": "1"}
MAY_FAIL_WITH: Final = (503, 504)


def request_for(event: Event) -> tuple[str, str, Any]:
    """Return method, path and body of an operation's request."""
    match event:
        case events.CreateTopicAsked(name=name, partitions=count, replication_factor=factor):
            return "POST", "/v1/topics", {"name": name, "partitions": count, "replication_factor": factor}
        case events.DeleteTopicAsked(name=name, abandon_offline=abandons):
            return "DELETE", f"/v1/topics/{name}?abandon_offline={str(abandons).lower()}", {}
        case events.GrowTopicAsked(name=name, count=count):
            return "POST", f"/v1/topics/{name}/partitions", {"count": count}
        case events.ReassignAsked(targets=targets):
            rows = [{"topic": t, "partition": n, "replicas": replicas} for (t, n), replicas in targets.items()]
            return "POST", "/v1/reassignments", {"version": 1, "partitions": rows}
        case events.ElectAsked(is_unclean=is_unclean):
            return "POST", "/v1/elections", {"type": "unclean" if is_unclean else "preferred", "partitions": None}
        case events.DrainAsked(broker_id=broker_id):
            return "POST", f"/v1/brokers/{broker_id}/drain", {}
        case events.UndrainAsked(broker_id=broker_id):
            return "DELETE", f"/v1/brokers/{broker_id}/drain", {}
        case events.ConfigAsked(entity=topic, values=values):
            return "PATCH", f"/v1/topics/{topic}/config", {"values": dict(values)}
    raise AssertionError(f"no operation asks {event}")


def refused_in(body: bytes) -> frozenset[tuple[str, int]]:
    """The partitions that were refused each for itself, in an answer about many."""
    said = json_of(body)
    outcomes = said.get("partitions", ()) if isinstance(said, dict) else ()
    each = outcomes if isinstance(outcomes, list) else ()
    return frozenset((one["topic"], one["partition"]) for one in each if one.get("code", "NONE") != "NONE")


class RealPlayer:
    """Sends requests to a cluster, and records its answers."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.calls: list[Call] = []
        self.bugs: list[str] = []
        self._writes: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------------ as operations see it

    @property
    def broker_ids(self) -> list[int]:
        return self.field.broker_ids

    def assignment(self, topic: str) -> dict[int, list[int]]:
        return self.field.assignments.get(topic, {})

    def write(self, path: str, data: bytes) -> None:
        task = asyncio.create_task(self._write(path, data))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _write(self, path: str, data: bytes) -> None:
        try:
            await self.field.cluster.zookeeper("create", path, data)
        except NodeExistsError:
            return  # another request waits there
        except KazooException:
            return  # ZooKeeper is away

    # ------------------------------------------------------------------ asking

    async def play(self, asks: tuple[Ask, ...]) -> None:
        """One client, until it is cancelled."""
        for one in asks:
            await elapse(one.pause_s)
            draw = Random(one.seed)
            asked = OPERATIONS[one.operation](self, draw)
            if asked is not None:
                await self.ask(*asked, draw=draw)

    async def ask(self, what: str, subject: str, event: Event, *, draw: Random) -> str:
        running = self.field.cluster.running
        if not running:
            await elapse(0.2)
            return "refused"
        number = len(self.calls)
        self.calls.append(Call(what, subject, now_ms(), None, None, event))
        known: dict[str, Any] = {"outcome": "unknown"}
        try:
            known = await self._outcome_of(draw.choice(running).url, event)
        finally:
            self.calls[number] = self.calls[number]._replace(ended_ms=now_ms(), **known)
        return str(known["outcome"])

    async def _outcome_of(self, url: str, event: Event) -> dict[str, Any]:
        """As it stands in the call."""
        method, path, body = request_for(event)
        headers = {**HEADERS, **lab_secrets().authorization(is_write=True)}
        try:
            answer = await self.field.cluster.http.send(
                method, f"{url}{path}", json.dumps(body).encode(), headers, TIMEOUT_MS
            )
        except UnreachableError:
            return {"outcome": "refused"}
        except (ExchangeError, TimeoutError):
            return {"outcome": "unknown"}
        status = answer.status
        if status >= 500 and status not in MAY_FAIL_WITH:
            self.bugs.append(f"{method} {path} was answered {status}: {answer.body[:500]!r}")
        if status < 300:
            return {"outcome": "ok", "refused": refused_in(answer.body)}
        return {"outcome": "unknown" if status >= 500 and status != 503 else "refused"}

    async def finish(self) -> None:
        if self._writes:
            await asyncio.wait(self._writes)
