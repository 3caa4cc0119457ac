"""Shared by the tests of the controller's duties: the three sides it is asked from, and a kill at the worst moment.

Owns nothing: clusters are `cluster.py`'s. It asks, waits and kills; whether a test passes is for the test to say.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.cluster import Broker, Cluster, a_cluster, now_ms
from tests.waiting import DEADLINE_S, until

TRANSACTION = 14  # ZooKeeper's number of a multi: all that a term writes
SESSION_TIMEOUT_MS = 3_000
#: no judgement of speed: a busy machine may need this long
ANSWER_WITHIN_MS: Final = round(DEADLINE_S * 1_000)
#: of a broker that is to be the controller while the others start
CLAIMS_MAX: Final = 3
KLAMM = Path(sys.executable).with_name("klamm")


@asynccontextmanager
async def a_duty_cluster(
    zookeeper: ZooKeeperServer, folder: Path, properties: Mapping[str, str] | None = None, *, brokers: int = 3
) -> AsyncIterator[Cluster]:
    """Nothing of it runs yet. Sessions are short, and leaderships stay where a test has put them."""
    async with a_cluster(
        [zookeeper],
        folder,
        brokers=brokers,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        properties={"auto.leader.rebalance.enable": "false", **(properties or {})},
    ) as cluster:
        yield cluster


# ---------------------------------------------------------------------- three sides


async def write(cluster: Cluster, path: str, value: object) -> None:
    """As Kafka's tools do: a znode, made."""
    await cluster.zookeeper("create", path, as_json(value))


async def read(cluster: Cluster, path: str) -> Any:
    """The JSON of a znode; None if there is none."""
    if await cluster.zookeeper("exists", path) is None:
        return None
    data, _ = await cluster.zookeeper("get", path)
    return json.loads(data)


async def ask(cluster: Cluster, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """By the API of a broker, which passes it on if it is not the controller: status and body. Asked again where the
    answer is that nothing was done and that one may try again: on a slow machine a session ends now and then."""
    content = b"" if body is None else as_json(body)
    headers = {"Content-Type": "application/json", "Klamm-Forward": "1"}

    async def answered() -> tuple[int, Any] | None:
        url = f"{a_standby(cluster).url}{path}"
        answer = await cluster.http.send(method, url, content, headers, ANSWER_WITHIN_MS)
        said = json.loads(answer.body)
        is_for_later = answer.status == 503 and said.get("code") in ("BUSY", "NOT_CONTROLLER")
        return None if is_for_later else (answer.status, said)

    said: tuple[int, Any] = await until(answered, f"{method} {path} is answered by a controller")
    return said


async def items(cluster: Cluster, path: str) -> list[Any] | None:
    """A list by the API; None while there is no controller."""
    status, page = await ask(cluster, "GET", path)
    return page["items"] if status == 200 else None


async def klamm(cluster: Cluster, *words: str, code: int = 0) -> Any:
    """Run the command; returns its output as JSON or, without output, its error message."""
    return await klamm_with({"KLAMM_URL": a_standby(cluster).url}, *words, code=code)


async def klamm_with(env: Mapping[str, str], *words: str, code: int = 0) -> Any:
    process = await asyncio.create_subprocess_exec(
        KLAMM,
        *words,
        env={**os.environ, "KLAMM_OUTPUT": "json", **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == code, f"klamm {' '.join(words)}: {process.returncode}\n{out.decode()}{err.decode()}"
    return json.loads(out) if out.startswith((b"{", b"[")) else err.decode()


def as_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


# ---------------------------------------------------------------------- the present state


def a_standby(cluster: Cluster) -> Broker:
    """Some broker that runs, if there is one that is not the controller."""
    running = [broker for broker in cluster.running if broker.state == "running"]
    return next((broker for broker in running if broker is not cluster.controller), running[0])


async def with_topics(cluster: Cluster, **assignments: Sequence[Sequence[int]]) -> None:
    """All brokers, and these topics: the replicas of each partition."""
    if not cluster.running:
        await cluster.start()
    for name, replicas in assignments.items():
        assignment = {str(number): list(one) for number, one in enumerate(replicas)}
        status, answer = await ask(cluster, "POST", "/v1/topics", {"name": name, "assignment": assignment})
        assert status == 201, answer
    await cluster.whole()


async def topic_id_of(cluster: Cluster, topic: str) -> str:
    znode = await read(cluster, f"/brokers/topics/{topic}")
    return str(znode["topic_id"])


def on_disk(broker: Broker) -> dict[tuple[str, int], bool]:
    """The replicas in its log directories, by topic id and partition: whether each is set aside."""
    found: dict[tuple[str, int], bool] = {}
    for path in (broker.folder / "replicas.jsonl", broker.folder / "disk-1" / "replicas.jsonl"):
        for line in _lines_of(path):
            key = line["topic_id"], line["partition"]
            if "topic" in line:
                found[key] = line.get("stray") is not None
            else:
                found.pop(key, None)
    return found


def journal(broker: Broker) -> list[dict[str, Any]]:
    """The lines of its state-change log."""
    return _lines_of(broker.folder / "state-change.log")


def _lines_of(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


async def is_told(cluster: Cluster) -> bool:
    """Returns whether every running broker was told ZooKeeper's states; it need not lead."""
    states = await cluster.states()
    return all([await broker.told() == states for broker in cluster.running])


async def is_offline(cluster: Cluster, *topics: str) -> bool:
    states = await cluster.states()
    return all(state.leader == -1 for (topic, _), state in states.items() if topic in topics)


# ---------------------------------------------------------------------- the worst moment


async def kill_when(happened: asyncio.Event, broker: Broker) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await happened.wait()
    await broker.kill()


async def jump_clock(cluster: Cluster, ahead_ms: int) -> None:
    """The controller's wall clock is so much ahead from now on, as a topic shows that is made for it."""
    controller = cluster.controller
    controller.jump(ahead_ms)

    async def has_jumped() -> bool:
        await cluster.serve(f"clock-{len(controller.lines())}")
        return any(line["at_ms"] > now_ms() + ahead_ms / 2 for line in controller.lines())

    await until(has_jumped, "a line from the future")


async def controlled_by(cluster: Cluster, broker_id: int) -> None:
    """Start all, this one first: so it is the controller. Again if a slow machine costs it its session."""
    await cluster.start(broker_id)
    for _ in range(CLAIMS_MAX):
        await cluster.start()
        if cluster.controller.broker_id == broker_id:
            return
        for other in cluster.running:
            if other.broker_id != broker_id:
                await other.kill()
        await until(lambda: cluster.controller.broker_id == broker_id, f"broker {broker_id} claims")
    raise AssertionError(f"in {CLAIMS_MAX} starts broker {broker_id} was not the controller")


async def fail_over(cluster: Cluster) -> Broker:
    """Kill the controller and wait for the next one; returns the killed broker."""
    claim, dead = cluster.order.claims()[-1], cluster.controller
    await dead.kill()
    successor = cluster.brokers[(await cluster.claim_after(claim)).broker_id]

    async def is_active() -> bool:
        return (await successor.get("/v1/controller") or {}).get("phase") == "active"

    await until(is_active, "the successor has loaded")
    return dead


async def take_offline(cluster: Cluster, *topics: str) -> None:
    """Of the topics on 1 and 2, broker 1 alone was in sync when it went; 2 is back. Both are killed before that."""
    await cluster.brokers[2].stop()
    await until(lambda: is_left_to(cluster, 1, *topics), "the other one is left")
    await cluster.brokers[1].stop()
    await until(lambda: is_offline(cluster, *topics), "no in-sync replica is left")
    await cluster.brokers[2].start()
    await until(cluster.is_agreed, "all were told")
    assert await is_offline(cluster, *topics)


async def is_left_to(cluster: Cluster, broker_id: int, *topics: str) -> bool:
    states = await cluster.states()
    return all(state.isr == (broker_id,) for (topic, _), state in states.items() if topic in topics)
