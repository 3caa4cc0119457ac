"""The faults of `tests/faults/hostile.py` on a real cluster, inflicted by a client with all rights.

Each notes its fault itself, by the node that it falls on, since rules need that node. The field keeps the repairs, as
it does for malformed data. Healing everything therefore ends all of them, and makes the repairs that ZooKeeper could
not take before. Hundreds of readers are such a fault, too: they damage nothing, and send far too many requests.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.security import OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from brokerstub.lab.settings import lab_secrets
from controller.core.codes import Code
from controller.core.project.znodes import CONTROLLER, CONTROLLER_EPOCH, ISR_NOTIFICATIONS, state_path, topic_path
from controller.wire import bodies
from tests.faults import hostile
from tests.faults.chaos.spoiling import repair
from tests.faults.chaos.target_cluster import Field, Injury
from tests.faults.checker.history import object_of
from tests.faults.operations import TOPICS
from tests.integration.cluster import Broker

Do = Callable[[Field, Broker, Random], Awaitable[Injury | None]]

NAME, PASSWORD = "owner", "of the field"
OWNER: Final = make_digest_acl(NAME, PASSWORD, all=True)
HIDDEN: Final = [OWNER, make_acl("world", "anyone", write=True, create=True, delete=True, admin=True)]
LOCKED: Final = [OWNER, make_acl("world", "anyone", read=True)]
#: a node that can be harmed is drawn so often
TRIES: Final = 5
QUOTAS: Final = "/zookeeper/quota"
NO_BYTES: Final = b"count=-1,bytes=-1=;byteHardLimit=1;countHardLimit=1"
CHILD: Final = "by-hand"

READERS: Final = "readers"
READER_COUNTS: Final = (100, 300)
READ_FOR_S: Final = 3.0
READ: Final = ("/metrics", "/v1/matrix", "/v1/partitions?limit=10000", "/v1/topics?limit=10000", "/v1/cluster")


async def log_in(field: Field) -> None:
    """Log in, so that the field can read and repair nodes that are forbidden to all others."""
    await field.cluster.log_in(f"{NAME}:{PASSWORD}")


def _noted(field: Field, kind: str, path: str, put_right: Callable[[], Awaitable[None]]) -> Injury:
    """It stands until it is healed, or everything is: also if its answer was lost."""
    number = field.note(kind, path, can_move_seat=kind in hostile.ON_THE_SEAT)
    key = f"{kind}: {path}"

    async def mend() -> None:
        await put_right()
        field.settle(number, has_missed=False)
        field.spoiled.pop(key, None)

    field.spoiled[key] = mend
    return Injury(kind, path, lambda: True, partial(repair, field, key))


def _is_harmed(field: Field, path: str) -> bool:
    """Whether the tool has harmed this path already. It does not touch the path again before that fault ends, so this
    is asked after whatever was read of the path: two hands may wait for ZooKeeper at once."""
    return any(what == path or what.endswith(f": {path}") for what in field.spoiled)


async def _forbid(field: Field, draw: Random, kind: str) -> Injury | None:
    call, is_seat = field.cluster.zookeeper, kind in (hostile.HIDE_SEAT, hostile.LOCK_SEAT)
    for _ in range(TRIES):
        path = hostile.seat_node(draw) if is_seat else hostile.forbidden_node(_numbers(field), field.broker_ids, draw)
        stat = await call("exists", path)
        if stat is not None and not _is_harmed(field, path):
            break
    else:
        return None
    made = stat.czxid

    async def put_right() -> None:
        now = await call("exists", path)
        if now is not None and now.czxid == made:
            with suppress(NoNodeError):
                await call("set_acls", path, OPEN_ACL_UNSAFE)

    injury = _noted(field, kind, path, put_right)
    with suppress(NoNodeError):
        await call("set_acls", path, HIDDEN if kind in (hostile.HIDE, hostile.HIDE_SEAT) else LOCKED)
        return injury
    await injury.heal()
    return None


async def _refuse(field: Field, draw: Random) -> Injury | None:
    """Forbid new nodes and growth below a topic by a quota, or prevent its removal by a child node that is not ours."""
    path = topic_path(_topic(field, draw))
    if not await field.cluster.zookeeper("exists", path) or _is_harmed(field, path):
        return None
    if draw.random() < 0.5:
        quota, anywhere = f"{QUOTAS}{field.cluster.chroot}{path}", field.cluster.anywhere
        injury = _noted(field, hostile.REFUSE, path, partial(_uproot, anywhere, quota))
        await anywhere("ensure_path", quota)
        await _made(anywhere, f"{quota}/zookeeper_limits", NO_BYTES)
        await _made(anywhere, f"{quota}/zookeeper_stats", b"count=0,bytes=0")
        return injury
    child = f"{path}/{CHILD}"
    injury = _noted(field, hostile.REFUSE, path, partial(_uproot, field.cluster.zookeeper, child))
    with suppress(NoNodeError):
        await _made(field.cluster.zookeeper, child, b"what is this?")
        return injury
    await injury.heal()
    return None


async def _made(call: Callable[..., Awaitable[Any]], path: str, data: bytes) -> None:
    with suppress(NodeExistsError):  # an answer was lost
        await call("create", path, data)


async def _uproot(call: Callable[..., Awaitable[Any]], path: str) -> None:
    """Delete a tree. Repeat until no other client makes or removes a node between the listing and the deletion."""
    while True:
        try:
            await call("delete", path, recursive=True)
        except NoNodeError:
            return
        except NotEmptyError:
            continue
        return


async def _disobey(field: Field, draw: Random) -> Injury | None:
    """Let one broker refuse, row by row, every partial request that names the topic. The request does not reach its
    broker. Full lists are obeyed: a topic missing from a full list would be set aside."""
    broker_id, path = draw.choice(field.broker_ids), topic_path(_topic(field, draw))
    with suppress(NoNodeError):
        data, _ = await field.cluster.zookeeper("get", path)
        topic_id = object_of(data).get("topic_id")
        if topic_id is None or _is_harmed(field, path):
            return None
        ways = [way for (_, target), way in field.cluster.peers.ways.items() if target == broker_id]
        if any(way.steads for way in ways):
            return None  # it disobeys already
        refused = [0]

        def answer(request: bytes) -> bytes | None:
            said = refusal_of(request, str(topic_id))
            refused[0] += said is not None
            return said

        async def obey() -> None:
            for way in ways:
                way.steads.pop(bodies.LEADER_AND_ISR, None)

        for way in ways:
            way.steads[bodies.LEADER_AND_ISR] = answer
        return replace(_noted(field, hostile.DISOBEY, path, obey), has_hit=lambda: refused[0] > 0)
    return None


def refusal_of(request: bytes, topic_id: str) -> bytes | None:
    """Return a broker's answer that refuses every row, when the request names this topic."""
    told = bodies.decode(request.partition(b"\r\n\r\n")[2], bodies.StatesRequest)
    if told.full or not any(topic.topic_id == topic_id for topic in told.topics):
        return None
    code = Code.UNKNOWN_SERVER_ERROR
    rows = [bodies.Refusal(topic.topic_id, row.partition, code) for topic in told.topics for row in topic.partitions]
    body = bodies.encode(bodies.Answer(Code.NONE, rows))
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


async def _remove(field: Field, draw: Random) -> Injury | None:
    """Delete a tree node by node, as a tool does. Configurations that allow unclean elections are spared: the moment at
    which the controller learns of the removal would be unknown."""
    path, call = hostile.removed_parent(draw), field.cluster.zookeeper
    if not await call("exists", path) or (path.startswith("/config") and await _allows_unclean(field, path)):
        return None
    field.note(hostile.REMOVE, path)
    await _uproot(call, path)
    return Injury(hostile.REMOVE, path, lambda: True)


async def _allows_unclean(field: Field, path: str) -> bool:
    call = field.cluster.zookeeper
    try:
        if b"true" in (await call("get", path))[0]:
            return True
        children = await call("get_children", path)
    except NoNodeError:
        return False
    return any([await _allows_unclean(field, f"{path}/{name}") for name in children])


async def _spoil_epoch(field: Field, draw: Random) -> Injury | None:
    call, garbage = field.cluster.zookeeper, draw.choice(hostile.GARBAGE)
    with suppress(NoNodeError, BadVersionError):
        before, stat = await call("get", CONTROLLER_EPOCH)
        made = stat.czxid
        if _is_harmed(field, CONTROLLER_EPOCH):
            return None  # what was read may be another hand's garbage

        async def put_right() -> None:
            with suppress(NoNodeError, BadVersionError):
                data, now = await call("get", CONTROLLER_EPOCH)
                if (now.czxid, data) == (made, garbage):
                    await call("set", CONTROLLER_EPOCH, before, now.version)

        injury = _noted(field, hostile.SPOIL_EPOCH, CONTROLLER_EPOCH, put_right)
        await call("set", CONTROLLER_EPOCH, garbage, stat.version)
        return injury
    await repair(field, f"{hostile.SPOIL_EPOCH}: {CONTROLLER_EPOCH}")
    return None


async def _delete_epoch(field: Field, draw: Random) -> Injury | None:
    """Delete the controller epoch, unless it is hidden. A controller that may not read the epoch receives no event, and
    finds it gone at the next write."""
    if not await field.cluster.zookeeper("exists", CONTROLLER_EPOCH) or _is_harmed(field, CONTROLLER_EPOCH):
        return None
    field.note(hostile.DELETE_EPOCH, CONTROLLER_EPOCH, can_move_seat=True)
    with suppress(NoNodeError):
        await field.cluster.zookeeper("delete", CONTROLLER_EPOCH)
    return Injury(hostile.DELETE_EPOCH, CONTROLLER_EPOCH, lambda: True)


async def _drop_id(field: Field, draw: Random) -> Injury | None:
    """Remove a topic's id: while a controller is active and knows the id, or before the next controller, which has to
    ask."""
    with_seat = draw.random() < 0.5
    for path in map(topic_path, draw.sample(TOPICS, len(TOPICS))):
        with suppress(NoNodeError):
            before, stat = await field.cluster.zookeeper("get", path)
            data = hostile.without_id(before)
            if data is not None and not _is_harmed(field, path):
                field.note(hostile.DROP_ID, path)
                return await _written(
                    field, hostile.DROP_ID, path, [("set_data", path, data, stat.version)], with_seat=with_seat
                )
    return None


async def _erase_states(field: Field, draw: Random) -> Injury | None:
    """Delete partition states, which have no watch. A tool announces the change, or the next controller finds them
    gone."""
    topic, with_seat = _topic(field, draw), draw.random() < 0.5
    gone = [one for one in sorted(field.assignments.get(topic, ())) if draw.random() < 0.7]
    call = field.cluster.zookeeper
    gone = [one for one in gone if await call("exists", state_path(topic, one))]
    if not gone or not await call("exists", ISR_NOTIFICATIONS):
        return None
    field.note(hostile.ERASE_STATES, f"{topic_path(topic)} {gone}")
    writes: list[tuple[Any, ...]] = [("delete", state_path(topic, one)) for one in gone]
    if not with_seat:
        announced = hostile.announcement_of(topic, gone)
        writes.append(("create", f"{ISR_NOTIFICATIONS}/isr_change_", announced, None, False, True))
    return await _written(field, hostile.ERASE_STATES, topic, writes, with_seat=with_seat)


async def _written(field: Field, kind: str, target: str, writes: list[tuple[Any, ...]], *, with_seat: bool) -> Injury:
    """All of it in one transaction, or nothing of it."""
    if with_seat:
        field.note("delete /controller", can_move_seat=True)
        writes = [*writes, ("delete", CONTROLLER)]
    has_hit = await field.cluster.together(*writes)
    return Injury(kind, target, lambda: has_hit)


async def _read(field: Field, broker: Broker, draw: Random) -> Injury:
    """By hundreds, for as long as it lasts, in a process of their own."""
    readers = draw.choice(READER_COUNTS)
    field.note(READERS, f"{readers} of {broker.broker_id}")
    said = json.dumps([broker.url, READ, readers, READ_FOR_S, lab_secrets().authorization(is_write=False)])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.readers", "--attack", said, stdout=asyncio.subprocess.PIPE
    )
    answers: dict[str, int] = {}

    async def end() -> None:
        out, _ = await process.communicate()
        answers.update(json.loads(out))

    return Injury(READERS, str(broker.broker_id), lambda: sum(answers.values()) > 0, end)


def _topic(field: Field, draw: Random) -> str:
    """One that was seen, if any was."""
    return draw.choice([topic for topic in TOPICS if field.assignments.get(topic)] or TOPICS)


def _numbers(field: Field) -> dict[str, list[int]]:
    return {topic: list(field.assignments.get(topic, ())) for topic in TOPICS}


def _on_nodes(do: Callable[..., Awaitable[Injury | None]], **drawn: str) -> Do:
    async def inflict(field: Field, broker: Broker, draw: Random) -> Injury | None:
        with suppress(KazooException):  # ZooKeeper is away: the field repairs the writes that may have arrived
            return await do(field, draw, **drawn)
        return None

    return inflict


HANDS: Final[dict[str, Do]] = {
    **{kind: _on_nodes(_forbid, kind=kind)
       for kind in (hostile.HIDE, hostile.LOCK, hostile.HIDE_SEAT, hostile.LOCK_SEAT)},
    hostile.REFUSE: _on_nodes(_refuse), hostile.DISOBEY: _on_nodes(_disobey), hostile.REMOVE: _on_nodes(_remove),
    hostile.SPOIL_EPOCH: _on_nodes(_spoil_epoch), hostile.DELETE_EPOCH: _on_nodes(_delete_epoch),
    hostile.DROP_ID: _on_nodes(_drop_id), hostile.ERASE_STATES: _on_nodes(_erase_states), READERS: _read,
}  # fmt: skip
