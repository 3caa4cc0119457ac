"""Nonsense in nodes that a controller believes (F17), and its repair: other topics go on (S33), and all converges."""

from __future__ import annotations

from random import Random

import pytest

from controller.core.events import CreateTopicAsked
from controller.core.operations import Delete, Set
from controller.core.project.znodes import ISR_NOTIFICATIONS
from tests.faults.chaos.spoiling import spoil as spoil_really
from tests.faults.chaos.target_cluster import Field
from tests.faults.conftest import healed
from tests.faults.hostile import below
from tests.faults.malformed_znodes import CONFIG, SPOILED, STATE, TOPIC
from tests.faults.simulate.spoiling import repair, spoil
from tests.faults.story import Stage, staged
from tests.waiting import until

SEEDS = range(6)
#: a state is not watched: its controller may not hear of it before it writes there
SAID = {TOPIC: "subject.left_out", CONFIG: "znode.unreadable"}
BY_A_TOOL = b'{"version":2,"partitions":{"0":[1,2,3],"1":[2,3,1]}}'


async def others_go_on(stage: Stage, name: str) -> None:
    """A topic is made, told and led while another one is malformed."""
    asked = CreateTopicAsked(name, assignment={0: tuple(sorted(stage.cluster.members))})
    assert await stage.ask(asked, what="create-topic", subject=name) == "ok"
    members = [one for one in stage.cluster.members.values() if one.broker is not None]
    await stage.until(
        lambda: all(one.broker is not None and name in one.broker.metadata.topic_names for one in members), "it is told"
    )


async def spoil_and_lose(stage: Stage, kind: str, draw: Random, *, loses: str) -> None:
    await stage.create("alpha", {0: (1, 2, 3), 1: (2, 3, 1)})
    await stage.create("steady", {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)})
    await stage.rest()
    path = spoil(stage.player, draw, kind, topics=("alpha",))
    assert path is not None
    await others_go_on(stage, "meanwhile")
    lost = {"nobody": None, "the controller": stage.controller.broker_id, "another": stage.others[0]}[loses]
    if lost is not None:
        stage.kill(lost)
        await stage.until(lambda: not stage.leads(lost, "steady", lost - 1)(), "its partitions are led by others")
        await stage.until(lambda: stage.cluster.active_ids, "somebody controls")
        await others_go_on(stage, "afterwards")
        stage.start(lost)
        await stage.until(lambda: len((stage.state("steady", lost - 1) or {"isr": ()})["isr"]) == 3, "it is in sync")
    repair(stage.player, path)
    await stage.rest()


@pytest.mark.parametrize("loses", ["nobody", "the controller", "another"])
@pytest.mark.parametrize("kind", SPOILED)
def test_a_topic_that_makes_no_sense_for_a_while_disturbs_no_other_and_comes_back(kind: str, loses: str) -> None:
    for seed in SEEDS:

        async def scene(stage: Stage, seed: int = seed) -> None:
            await spoil_and_lose(stage, kind, Random(seed), loses=loses)

        outcome = staged(scene, seed=f"spoiled {seed}")
        assert outcome.findings == [], f"{seed}: {outcome.findings[0]}"


def test_another_write_in_between_is_not_overruled() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create("alpha", {0: (1, 2, 3)})
        await stage.rest()
        path = spoil(stage.player, Random(1), TOPIC, topics=("alpha",))
        assert path is not None
        said = stage.cluster.zookeeper.tree.nodes[path]
        stage.cluster.zookeeper.commit(0, [Set(path, BY_A_TOOL, said.version)])
        repair(stage.player, path)
        assert stage.cluster.zookeeper.read(path) == BY_A_TOOL
        await stage.until(lambda: stage.state("alpha", 1), "what the tool added is led")
        await stage.rest()

    assert staged(scene).findings == []


def test_a_state_is_put_right_and_announced_though_a_tool_removed_where_to() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create("alpha", {0: (1, 2, 3)})
        await stage.rest()
        path = spoil(stage.player, Random(1), STATE, topics=("alpha",))
        assert path is not None
        stage.kill(stage.controller.broker_id)
        for one in below(ISR_NOTIFICATIONS, stage.cluster.zookeeper.tree.nodes):
            stage.cluster.zookeeper.commit(0, [Delete(one, -1)])
        repair(stage.player, path)
        assert stage.state("alpha", 0) is not None
        await stage.rest()

    assert staged(scene).findings == []


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("kind", [TOPIC, STATE, CONFIG])
async def test_real_controllers_say_it_serve_others_and_are_whole_when_it_is_put_right(field: Field, kind: str) -> None:
    await field.cluster.serve("alpha")
    await field.cluster.whole()
    field.assignments = {"alpha": {0: [1, 2, 3]}}
    injury = await spoil_really(field, Random(1), kind)
    assert injury is not None
    before, [path] = field.cluster.order.claims(), field.spoiled
    assert "alpha" in path
    if (said := SAID.get(kind)) is not None:
        await until(lambda: any(one.log(said) for one in field.cluster.running), "it is said")
    await field.cluster.serve(f"beside-{kind.rpartition(' ')[2]}")
    assert field.cluster.order.claims() == before
    await healed(field, injury)
    assert field.spoiled == {}
