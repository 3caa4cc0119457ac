"""Claims of the seat, on the fake and on a real ZooKeeper: no epoch is drawn twice, whichever nodes are removed."""

from __future__ import annotations

import msgspec

from controller.core.formats import TermZnode
from controller.core.operations import Check, Create, Delete, Op
from controller.seat.claim import NOTES_MAX, Claim, claim
from controller.zookeeper.port import BadVersionError, ZooKeeper
from tests.contract.labs import Lab
from tests.fakes.acls import READ, grant_to_all

SEAT, EPOCH = "/controller", "/controller_epoch"


async def won_by(zk: ZooKeeper, broker_id: int, now_ms: int = 0) -> Claim:
    """As a process does that has just come up: it knows of no epoch."""
    won = await claim(zk, broker_id, now_ms)
    assert won is not None
    return won


async def make(zk: ZooKeeper, *paths: str) -> None:
    assert (await zk.transact([Create(path, b"") for path in paths])).refused is None


async def remove(zk: ZooKeeper, *paths: str) -> None:
    assert (await zk.transact([Delete(path, -1) for path in paths])).refused is None


async def test_a_claim_is_known_before_its_term_has_written_anything(lab: Lab) -> None:
    """A tool removes both nodes, and another process claims. Then the first term's first write arrives."""
    zk, other, tool = await lab.connect(), await lab.connect(), await lab.connect()
    first = await won_by(zk, 1, now_ms=1_000)
    await remove(tool, SEAT, EPOCH)
    second = await won_by(other, 2, now_ms=2_000)
    assert second.controller_epoch == first.controller_epoch + 1
    write: list[Op] = [Check(EPOCH, first.epoch_version), Check(SEAT, 0), Create("/written", b"")]
    assert (await zk.transact(write)).refused == (0, BadVersionError.code)
    await tool.sync()
    for won in (first, second):
        note = await tool.get(f"/klamm/terms/{won.controller_epoch}")
        assert note is not None
        assert msgspec.json.decode(note.data, type=TermZnode) == TermZnode(won.broker_id, won.claimed_at_ms)


async def test_a_note_that_may_not_be_written_keeps_no_process_from_the_seat(lab: Lab) -> None:
    zk, tool = await lab.connect(), await lab.connect()
    await make(tool, "/klamm", "/klamm/terms", "/klamm/terms/6")
    await lab.set_acl("/klamm/terms", grant_to_all(READ))
    assert (await won_by(zk, 1)).controller_epoch == 7
    await tool.sync()
    assert (await tool.exists("/klamm/terms/7")).stat is None
    assert (await tool.exists(SEAT)).stat is not None


async def test_notes_of_claims_that_never_wrote_are_bounded(lab: Lab) -> None:
    """Each claim removes two of the oldest, if it may: a foreign child below one keeps no process from noting."""
    zk, tool = await lab.connect(), await lab.connect()
    await make(tool, "/klamm", "/klamm/terms", *(f"/klamm/terms/{epoch}" for epoch in range(1, NOTES_MAX + 1)))
    await won_by(zk, 1)
    await tool.sync()
    found = await tool.children("/klamm/terms")
    assert found is not None
    assert {int(name) for name in found.names} == set(range(3, NOTES_MAX + 2))
    await remove(tool, SEAT)
    await make(tool, "/klamm/terms/3/foreign", f"/klamm/terms/{NOTES_MAX + 2}")
    assert (await won_by(zk, 1)).controller_epoch == NOTES_MAX + 3
    await tool.sync()
    found = await tool.children("/klamm/terms")
    assert found is not None
    assert {int(name) for name in found.names} == set(range(3, NOTES_MAX + 4))
