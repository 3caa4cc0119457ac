"""Terms started in the middle of real clusters: at any zxid of the recordings, our controller takes over from Kafka's.

The fake ZooKeeper is seeded with the tree at that zxid. Kafka's controller then loses its seat in one of two ways: the
seat alone is taken from it, or its whole session ends and its broker with it. The term's writes are judged by the
invariants of Kafka's data: leader epochs (S8), conditional writes (S10), the leader in the ISR (S11), which is never
empty (S12) and stays inside the assignment (S13).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from functools import cache
from random import Random

import msgspec
import pytest

from controller.base.config import LIMITS
from controller.core import formats
from controller.core.model import NO_LEADER, Assignment, Leadership
from controller.core.operations import (
    Create,
    Delete,
    Op,
    Set,
)
from controller.core.project.znodes import (
    BROKER_IDS,
    CONTROLLER,
    DELETE_TOPICS,
    state_path,
    topic_path,
)
from controller.seat.claim import claim, release
from controller.term.parts import TermParts
from controller.term.term import Term
from tests.fakes.zookeeper import Commit, FakeClient, FakeZooKeeper
from tests.recordings import RECORDINGS, Recording, Tree, Znode
from tests.support.harness import Heard
from tests.waiting import DEADLINE_S

DRAWN = 200
BROKER_ID = 77  # none of the recorded ones: a controller that hosts nothing
STATE = re.compile(r"/brokers/topics/(?P<topic>[^/]+)/partitions/(?P<partition>\d+)/state")
everywhere = pytest.mark.parametrize(
    ("recording", "seat"),
    [pytest.param(one, seat, id=f"{one}, seat {seat}") for one in RECORDINGS for seat in ("taken", "vacated by death")],
)


class Takeover(msgspec.Struct):
    """The results of two terms, one after the other, that began at one zxid."""

    zxid: int
    before: Tree
    first: list[Commit]
    second: list[Commit]
    left_out: dict[str, str]
    live_ids: frozenset[int]
    epoch: int


@cache
def takeovers(recording: Recording, seat: str) -> list[Takeover]:
    """From every claim, and from others drawn by a fixed seed."""
    later = [group[0].zxid for group in recording.transactions if group[0].zxid > recording.claims[0]]
    drawn = Random(recording.name).sample(sorted({*later} - {*recording.claims}), DRAWN)

    async def all_of_them() -> list[Takeover]:
        return [await takeover(zxid, tree, seat) for zxid, tree in recording.trees([*recording.claims, *drawn])]

    return asyncio.run(all_of_them())


async def takeover(zxid: int, tree: Tree, seat: str) -> Takeover:
    server = FakeZooKeeper()
    stats = {path: znode.stat for path, znode in tree.items()}
    server.seed({path: znode.data for path, znode in tree.items()}, stats, zxid=zxid)
    if CONTROLLER in tree and seat == "taken":
        server.commit(0, [Delete(CONTROLLER, -1)])
    elif CONTROLLER in tree:
        server.expire(tree[CONTROLLER].owner)
    start = len(server.history)
    client = await server.connect(session_timeout_ms=18_000)
    term = await run_term(server, client)
    middle = len(server.history)
    await release(client)
    await run_term(server, client)
    left_out = term.cluster.parked | {str(key): trouble for key, (trouble, _) in term.cluster.unreadable.items()}
    first, second = server.history[start:middle], server.history[middle:]
    return Takeover(zxid, tree, first, second, left_out, term.cluster.live_ids, term.claim.controller_epoch)


async def run_term(server: FakeZooKeeper, client: FakeClient) -> Term:
    """Claim the seat, and hold it until everything is loaded and decided."""
    won = await claim(client, BROKER_ID, now_ms=0)
    assert won is not None
    heard = Heard()
    parts = TermParts(
        cluster_id="recorded",
        open_outboxes=heard.open_outboxes,
        journal=heard,
        limits=LIMITS,
        wall_ms=lambda: server.now_ms,
        entropy=Random(won.controller_epoch),
        clock=server.clock,
        sleep=server.clock.sleep,
    )
    term = Term(client, won, parts, asyncio.Event(), server.clock())
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        holding = group.create_task(term.hold())
        while not term.is_loaded:
            assert not holding.done(), holding.result()
            await asyncio.sleep(0)
        holding.cancel()
    return term


def state_writes(commits: Sequence[Commit]) -> Iterator[tuple[re.Match[str], Op]]:
    for commit in commits:
        for op in commit.ops:
            if not isinstance(op, Create | Set | Delete):
                continue
            if (match := STATE.fullmatch(op.path)) is not None:
                yield match, op


def as_written(data: bytes) -> Leadership:
    """A state without the reader's own checks, which a judge must not lean on."""
    znode = formats.decode(data, formats.StateZnode)
    return Leadership(znode.leader, znode.leader_epoch, znode.isr, znode.controller_epoch)


def broken_invariants(before: Tree, commits: Sequence[Commit]) -> Iterator[str]:
    """Which of S8 and S10 to S13 each write breaks, in the order of the writes."""
    known = {
        path: (znode.version, formats.decode_state(znode.data)) for path, znode in before.items() if STATE.match(path)
    }
    for match, op in state_writes(commits):
        old = known.get(op.path)
        if isinstance(op, Delete):
            yield f"a term's start deletes {op.path}"
            continue
        assert isinstance(op, Create | Set)
        state = as_written(op.data)
        _, assignment = formats.decode_topic(before[topic_path(match["topic"])].data)
        version = 0 if isinstance(op, Create) else op.version + 1
        known[op.path] = version, state
        if isinstance(op, Set) and (old is None or op.version != old[0]):
            yield f"S10 {op.path} set at version {op.version}, was {old}"
        if state.leader_epoch != (0 if old is None else old[1].leader_epoch + 1):
            yield f"S8 {op.path} {old} -> {state}"
        if state.leader not in (NO_LEADER, *state.isr):
            yield f"S11 {op.path} {state}"
        if not state.isr:
            yield f"S12 {op.path}"
        if not set(state.isr) <= set(assignment[int(match["partition"])].replicas):
            yield f"S13 {op.path} {old} -> {state}, assigned {assignment[int(match['partition'])]}"


def states_after(before: Tree, commits: Sequence[Commit]) -> dict[str, Leadership]:
    states = {path: formats.decode_state(znode.data) for path, znode in before.items() if STATE.fullmatch(path)}
    for _, op in state_writes(commits):
        if isinstance(op, Create | Set):
            states[op.path] = formats.decode_state(op.data)
    return states


@everywhere
def test_nothing_is_left_out(recording: Recording, seat: str) -> None:
    """A parked subject would be a bug, an illegal move among them; an unreadable one would be a wrong format."""
    assert {one.zxid: one.left_out for one in takeovers(recording, seat) if one.left_out} == {}


@everywhere
def test_invariants_hold_over_every_write(recording: Recording, seat: str) -> None:
    broken = {one.zxid: list(broken_invariants(one.before, one.first)) for one in takeovers(recording, seat)}
    assert {zxid: troubles for zxid, troubles in broken.items() if troubles} == {}
    assert sum(1 for one in takeovers(recording, seat) for _ in state_writes(one.first)) > 0


@everywhere
def test_a_second_term_writes_no_state(recording: Recording, seat: str) -> None:
    again = {one.zxid: list(state_writes(one.second)) for one in takeovers(recording, seat)}
    assert {zxid: ops for zxid, ops in again.items() if ops} == {}


@everywhere
def test_live_replicas_lead_every_partition_that_they_can(recording: Recording, seat: str) -> None:
    for one in takeovers(recording, seat):
        registered = {path for path in one.before if path.startswith(f"{BROKER_IDS}/")}
        assert len(registered) - len(one.live_ids) in ((0,) if seat == "taken" else (0, 1))
        leaving = {path.rpartition("/")[2] for path in one.before if path.startswith(f"{DELETE_TOPICS}/")}
        for path, state in states_after(one.before, one.first).items():
            if path.split("/")[3] in leaving:
                continue  # led no more
            can_lead = one.live_ids.intersection(state.isr)
            assert state.leader in can_lead or (state.leader == NO_LEADER and not can_lead), (one.zxid, path, state)


@everywhere
def test_a_decision_carries_the_epoch_of_its_term(recording: Recording, seat: str) -> None:
    for one in takeovers(recording, seat):
        for _, op in state_writes(one.first):
            assert isinstance(op, Create | Set)
            assert formats.decode_state(op.data).controller_epoch == one.epoch


@pytest.mark.parametrize(
    ("broken", "version", "state"),
    [
        ("S8", 1, Leadership(2, 3, (2,), 9)),
        ("S8", 1, Leadership(2, 5, (2,), 9)),
        ("S10", 0, Leadership(2, 4, (2,), 9)),
        ("S10", -1, Leadership(2, 4, (2,), 9)),
        ("S11", 1, Leadership(1, 4, (2,), 9)),
        ("S12", 1, Leadership(NO_LEADER, 4, (), 9)),
        ("S13", 1, Leadership(2, 4, (2, 4), 9)),
        ("", 1, Leadership(2, 4, (2,), 9)),
        ("", 1, Leadership(NO_LEADER, 4, (1, 2), 9)),
    ],
)
def test_the_judge_sees_a_broken_invariant(broken: str, version: int, state: Leadership) -> None:
    path = state_path("orders", 0)
    topic = formats.encode_topic("x" * 22, {0: Assignment((1, 2, 3))})
    before = {
        topic_path("orders"): Znode(topic, 0, 1, 1, 0, 0, 1),
        path: Znode(formats.encode_state(Leadership(1, 3, (1, 2), 8)), 1, 2, 2, 0, 0, 2),
    }
    commit = Commit(3, 1, (Set(path, formats.encode_state(state), version),), 0)
    assert [trouble.partition(" ")[0] for trouble in broken_invariants(before, [commit])] == [broken] * bool(broken)
