"""Scenes of the museum about brokers and topics, played in the simulator. The checker's rules judge them."""

from __future__ import annotations

import json

from controller.core.events import DeleteTopicAsked, ElectAsked
from controller.core.project.znodes import REASSIGN
from tests.faults.story import Stage, scene


@scene
async def test_m03_an_older_controllers_request_comes_late(stage: Stage) -> None:
    """A request of the old term is under way for so long that a new term has told the broker since."""
    old = stage.controller
    receiver = stage.others[0]
    link = stage.cluster.network.link(old.name, f"b{receiver}:80")
    link.delay_s = 1.5
    await stage.create("orders", {0: (1, 2, 3)})
    await stage.pause(0.1)  # it has left
    link.delay_s = 0.0
    stage.kill(old.broker_id)
    stage.cluster.zookeeper.expire(old.zk.session_id if old.zk else 0)
    await stage.until(lambda: stage.cluster.active_ids, "another controls")
    await stage.pause(3.0)
    stage.start(old.broker_id)
    await stage.rest()


@scene
async def test_m37_a_bounce_between_two_readings(stage: Stage) -> None:
    """A broker restarts while the controller stands still; its session ends at once, so the ids look as before."""
    await stage.create("orders", {0: (1, 2, 3), 1: (2, 3, 1)})
    await stage.rest()
    controller, bouncing = stage.controller, stage.others[0]
    before = stage.cluster.zookeeper.tree.nodes[f"/brokers/ids/{bouncing}"].czxid
    controller.process.freeze()
    stage.cluster.fault("freeze", controller.broker_id, can_move_seat=True)
    stage.expire(bouncing)
    stage.kill(bouncing)
    stage.start(bouncing)
    await stage.until(lambda: not stage.gone(bouncing)(), "it is back")
    assert stage.cluster.zookeeper.tree.nodes[f"/brokers/ids/{bouncing}"].czxid != before
    controller.process.thaw()
    await stage.rest()
    assert stage.controller is controller


@scene
async def test_m38_a_request_for_the_previous_life(stage: Stage) -> None:
    """A request to an incarnation reaches the next one."""
    await stage.create("orders", {0: (1, 2, 3)})
    await stage.rest()
    bouncing = stage.others[0]
    link = stage.cluster.network.link(stage.controller.name, f"b{bouncing}:80")
    link.delay_s = 1.0
    await stage.create("more", {0: (1, 2, 3)})
    await stage.pause(0.1)  # it has left
    link.delay_s = 0.0
    stage.kill(bouncing)
    stage.start(bouncing)
    await stage.pause(3.0)
    await stage.rest()


@scene
async def test_m40_m90_the_first_thing_told_is_everything(stage: Stage) -> None:
    """A broker joins while its partitions change."""
    await stage.create("orders", {0: (1, 2, 3), 1: (2, 3, 1)})
    await stage.rest()
    joining = stage.others[0]
    stage.kill(joining)
    await stage.until(stage.gone(joining), "it is gone")
    stage.start(joining)
    await stage.create("more", {0: (1, 2, 3)})
    await stage.rest()


@scene
async def test_m66_a_deletion_is_taken_up_by_the_next_controller(stage: Stage) -> None:
    """The controller dies while a deletion waits for a broker."""
    await stage.create("doomed", {0: (1, 2, 3)})
    await stage.rest()
    waited_for, old = stage.others[0], stage.controller.broker_id
    stage.kill(waited_for)
    await stage.until(stage.gone(waited_for), "it is gone")
    await stage.pause(0.5)
    await stage.ask(DeleteTopicAsked("doomed"), what="delete-topic", subject="doomed")
    await stage.until(lambda: stage.has("/admin/delete_topics/doomed"), "it is marked")
    await stage.pause(0.5)
    stage.kill(old)
    await stage.until(lambda: stage.cluster.active_ids, "another controls")
    stage.start(waited_for)
    stage.start(old)
    await stage.rest()
    assert not stage.has("/brokers/topics/doomed")


@scene
async def test_m73_a_deleted_replica_is_gone(stage: Stage) -> None:
    """A topic is deleted; no broker keeps a replica of it."""
    await stage.create("doomed", {0: (1, 2, 3)})
    await stage.rest()
    await stage.delete("doomed")
    await stage.until(lambda: not stage.has("/brokers/topics/doomed"), "it is gone")
    await stage.rest()


@scene
async def test_m78_a_request_node_is_taken_up_by_the_next_controller(stage: Stage) -> None:
    """Reassignments asked for by node, one of them for a dead broker, outlive the controller."""
    await stage.create("orders", {0: (1, 2), 1: (2, 3)})
    await stage.rest()
    old = stage.controller.broker_id
    stage.kill(old)
    await stage.until(stage.gone(old), "it is gone")
    wanted = b'{"topic":"orders","partition":0,"replicas":[2,3]},{"topic":"orders","partition":1,"replicas":[3,1]}'
    stage.write("/admin/reassign_partitions", b'{"version":1,"partitions":[' + wanted + b"]}")
    stage.start(old)
    await stage.rest()
    assert not stage.has("/admin/reassign_partitions")
    assert stage.player.assignment("orders") == {0: [2, 3], 1: [3, 1]}


@scene
async def test_m78_a_request_node_stays_until_all_that_it_lists_is_done(stage: Stage) -> None:
    """Of two reassignments in a node the first is done at once and the other waits; then the controller dies."""
    controller, near, far = stage.controller.broker_id, *stage.others
    await stage.create("orders", {0: (controller, near), 1: (controller, near)})
    await stage.rest()
    for other in stage.cluster.broker_ids:  # it fetches from no leader, so it does not come into sync
        stage.cluster.network.link(f"b{far}:80", f"b{other}:80").is_cut = True
    targets = {0: [near, controller], 1: [near, far]}
    listed = [{"topic": "orders", "partition": number, "replicas": one} for number, one in targets.items()]
    stage.write(REASSIGN, json.dumps({"version": 1, "partitions": listed}).encode())
    await stage.until(lambda: stage.player.assignment("orders")[0] == targets[0], "the first is done")
    await stage.pause(1.0)
    left = json.loads(stage.cluster.zookeeper.read(REASSIGN) or b'{"partitions": []}')
    assert [one["partition"] for one in left["partitions"]] == [1]
    stage.kill(controller)
    await stage.until(lambda: stage.cluster.active_ids, "another controls")
    stage.cluster.network.heal()
    stage.start(controller)
    await stage.rest()
    assert not stage.has(REASSIGN)
    assert stage.player.assignment("orders") == targets


@scene
async def test_m46_an_unreachable_broker_gets_the_latest_state_when_it_is_back(stage: Stage) -> None:
    """For half a minute a broker hears nothing, while one partition changes again and again; its session lives."""
    await stage.create("orders", {0: (1, 2, 3)})
    await stage.rest()
    controller, deaf = stage.controller, stage.others[0]
    link = stage.cluster.network.link(controller.name, f"b{deaf}:80")
    link.is_cut = True
    for number in range(30):
        await stage.create(f"t{number}", {0: (controller.broker_id, stage.others[1])})
        await stage.pause(1.0)
    term = controller.handle.term
    assert term is not None
    owed = term.outbox_status()[deaf]
    assert owed.age_ms >= 25_000, "nobody can see that it hears nothing"
    member = stage.cluster.members[deaf]
    assert member.broker is not None
    assert len(member.broker.metadata.topic_names) == 1
    link.is_cut = False
    await stage.rest()
    assert len(member.broker.metadata.topic_names) == 31
    assert stage.controller is controller


@scene
async def test_m86_no_election_that_cannot_help(stage: Stage) -> None:
    """The first replica is live and not in sync: nothing is elected, no leader epoch rises."""
    await stage.create("orders", {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)})
    await stage.rest()
    first = stage.others[0]
    number = first - 1
    for other in stage.cluster.broker_ids:  # it fetches from no leader, so it is not taken back
        stage.cluster.network.link(f"b{first}:80", f"b{other}:80").is_cut = True
    stage.kill(first)
    await stage.until(stage.gone(first), "it is gone")
    await stage.pause(1.0)
    stage.start(first)
    await stage.until(lambda: not stage.gone(first)(), "it is back")
    await stage.pause(1.0)
    before = stage.state("orders", number)
    await stage.ask(ElectAsked(is_unclean=False), what="elect", subject="all")
    assert stage.state("orders", number) == before
    stage.cluster.network.heal()
    await stage.rest()
