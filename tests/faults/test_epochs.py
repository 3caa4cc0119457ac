"""A tool harms the nodes that all others hang on, while brokers run: no epoch is used twice, no process ends, and all
converges. The checker's rules judge it, S1 above all."""

from __future__ import annotations

import pytest

from controller.core.events import CreateTopicAsked
from controller.core.operations import Delete, Op, Set
from tests.faults.checker.replay import epoch_in
from tests.faults.simulate.member import Member
from tests.faults.story import Stage, scene, staged

EPOCH, SEAT = "/controller_epoch", "/controller"


def do(stage: Stage, kind: str, *ops: Op) -> None:
    """As an operator does."""
    stage.cluster.fault(kind, can_move_seat=True)
    if Delete(SEAT, -1) in ops:
        stage.cluster.fault(f"delete {SEAT}")
    assert stage.cluster.zookeeper.commit(0, ops).refused is None


def epoch_of(stage: Stage) -> int:
    return epoch_in(stage.cluster.zookeeper.read(EPOCH) or b"") or 0


def living(stage: Stage) -> list[Member]:
    members = list(stage.cluster.members.values())
    assert not any(one.process.is_dead or one.task.done() for one in members), "a process has ended"
    return members


async def a_later_term(stage: Stage, than: int) -> None:
    await stage.until(
        lambda: stage.cluster.active_ids and epoch_of(stage) > than, "somebody controls with a later epoch"
    )


async def serves(stage: Stage, name: str) -> None:
    """A topic is made, and every broker is told of it."""
    asked = CreateTopicAsked(name, assignment={0: tuple(sorted(stage.cluster.members))})
    assert await stage.ask(asked, what="create-topic", subject=name) == "ok"
    await stage.until(
        lambda: all(one.broker is not None and name in one.broker.metadata.topic_names for one in living(stage)),
        "every broker is told",
    )


@scene
async def test_an_epoch_that_is_deleted_under_a_term_is_drawn_no_second_time(stage: Stage) -> None:
    await stage.create("before", {0: (1, 2, 3)})
    await stage.rest()
    epoch = epoch_of(stage)
    do(stage, f"delete {EPOCH}", Delete(EPOCH, -1))
    await a_later_term(stage, epoch)
    await serves(stage, "afterwards")
    await stage.rest()


@scene
async def test_an_epoch_that_is_deleted_with_the_seat_is_drawn_no_second_time(stage: Stage) -> None:
    await stage.create("before", {0: (1, 2, 3)})
    for number in range(3):
        await stage.rest()
        epoch = epoch_of(stage)
        do(stage, f"delete {EPOCH}", Delete(EPOCH, -1), Delete(SEAT, -1))
        await a_later_term(stage, epoch)
        await serves(stage, f"afterwards-{number}")
    await stage.rest()


@scene
async def test_nonsense_in_the_epoch_ends_no_process_and_mending_it_is_enough(stage: Stage) -> None:
    await stage.create("before", {0: (1, 2, 3)})
    await stage.rest()
    epoch = epoch_of(stage)
    do(stage, f"spoil {EPOCH}", Set(EPOCH, b"abc", -1), Delete(SEAT, -1))
    await stage.until(lambda: all(one.handle.seat_trouble for one in living(stage)), "everybody says what is wrong")
    await stage.pause(30.0)
    assert not stage.cluster.active_ids
    assert all(b"abc" in (one.handle.seat_trouble or "").encode() for one in living(stage))
    do(stage, f"spoil {EPOCH}", Set(EPOCH, b"1", -1))
    await a_later_term(stage, epoch)
    await serves(stage, "afterwards")
    await stage.rest()
    assert not any(one.handle.seat_trouble for one in living(stage))


@scene
async def test_an_epoch_that_is_put_back_ends_the_term_and_the_next_one_is_above_all(stage: Stage) -> None:
    await stage.create("before", {0: (1, 2, 3)})
    for _ in range(3):
        stage.delete_seat()
        await stage.rest()
    epoch = epoch_of(stage)
    do(stage, f"spoil {EPOCH}", Set(EPOCH, b"1", -1))
    await a_later_term(stage, epoch)
    await serves(stage, "afterwards")
    await stage.rest()


def below(stage: Stage, *roots: str) -> list[Op]:
    nodes = stage.cluster.zookeeper.tree.nodes
    paths = [path for path in nodes if any(path == root or path.startswith(f"{root}/") for root in roots)]
    return [Delete(path, -1) for path in sorted(paths, reverse=True)]


@scene
async def test_the_list_of_brokers_is_made_again_and_everybody_registers(stage: Stage) -> None:
    await stage.create("before", {0: (1, 2, 3), 1: (2, 3, 1)})
    await stage.rest()
    do(stage, "remove everything", *below(stage, "/brokers/ids"))
    await stage.until(lambda: len(living(stage)) == 3 and below(stage, "/brokers/ids")[3:], "all are registered again")
    await stage.rest()
    await serves(stage, "afterwards")
    await stage.rest()


@pytest.mark.parametrize(
    "roots", [("/admin", "/config"), ("/isr_change_notification", "/klamm", "/cluster", "/feature")]
)
def test_parents_of_request_nodes_are_made_again(roots: tuple[str, ...]) -> None:
    async def play(stage: Stage) -> None:
        await stage.create("before", {0: (1, 2, 3)})
        await stage.rest()
        do(stage, "remove everything", *below(stage, *roots))
        await stage.until(lambda: stage.cluster.zookeeper.read(roots[0]) is not None, "it is made again")
        await serves(stage, "afterwards")
        await stage.delete("afterwards")
        await stage.rest()

    assert not staged(play).findings


@scene
async def test_where_everything_was_removed_all_begin_anew_above_the_earlier_epochs(stage: Stage) -> None:
    await stage.create("before", {0: (1, 2, 3)})
    for _ in range(2):
        stage.delete_seat()
        await stage.rest()
    epoch, known = epoch_of(stage), stage.cluster.zookeeper.read("/cluster/id")
    nodes = stage.cluster.zookeeper.tree.nodes
    do(stage, "remove everything", *below(stage, *(path for path in nodes if path.count("/") == 1 and path != "/")))
    await a_later_term(stage, epoch)
    await stage.until(lambda: below(stage, "/brokers/ids")[3:], "all are registered again")
    assert stage.cluster.zookeeper.read("/cluster/id") == known, "or no broker would start again"
    await serves(stage, "afterwards")
    await stage.rest()
