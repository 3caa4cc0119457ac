"""The faults of `tests/faults/hostile.py` on a simulated cluster, and the repair of each.

The cluster keeps the repairs, as it does for malformed data, so that healing the cluster ends all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from controller.core.decide.topic_ids import draw_topic_id
from controller.core.operations import Create, Delete, Op, Set
from controller.core.project.znodes import CONTROLLER, CONTROLLER_EPOCH, ISR_NOTIFICATIONS, state_path, topic_path
from tests.fakes.acls import ALL, OPEN, READ, grant_to_all
from tests.faults import hostile
from tests.faults.checker.history import object_of
from tests.faults.operations import TOPICS
from tests.faults.simulate.harms import Inflict
from tests.faults.simulate.player import Player
from tests.faults.simulate.spoiling import repair

LENGTHS_S: Final = (0.5, 4.0, 9.0)


def _until_repaired(player: Player, kind: str, path: str, length_s: float, put_right: Callable[[], None]) -> None:
    """It stands for a while, unless all is healed before."""
    what = f"{kind}: {path}"
    player.cluster.spoiled[what] = put_right
    player.cluster.fault(kind, path, can_move_seat=kind in hostile.ON_THE_SEAT, lasts_s=length_s)
    player.later(length_s, lambda: repair(player, what))


def _is_harmed(player: Player, path: str) -> bool:
    """Whether the tool has harmed this path already. It does not touch the path again before that fault ends."""
    return any(what == path or what.endswith(f": {path}") for what in player.cluster.spoiled)


def _forbid(player: Player, draw: Random, kind: str) -> None:
    cluster, length_s = player.cluster, draw.choice(LENGTHS_S)
    if kind in (hostile.HIDE_SEAT, hostile.LOCK_SEAT):
        path = hostile.seat_node(draw)
    else:
        path = hostile.forbidden_node(_assignments(player), player.broker_ids, draw)
    node = cluster.zookeeper.tree.nodes.get(path)
    if node is None or _is_harmed(player, path):
        return
    perms = ALL & ~READ if kind in (hostile.HIDE, hostile.HIDE_SEAT) else READ
    cluster.zookeeper.set_acl(path, grant_to_all(perms))

    def put_right() -> None:
        now = cluster.zookeeper.tree.nodes.get(path)
        if now is not None and now.czxid == node.czxid:
            cluster.zookeeper.set_acl(path, *OPEN)

    _until_repaired(player, kind, path, length_s, put_right)


def _refuse(player: Player, draw: Random) -> None:
    cluster, length_s, code = player.cluster, draw.choice(LENGTHS_S), draw.choice(hostile.CODES)
    path = topic_path(draw.choice(TOPICS))
    if not _is_harmed(player, path):
        cluster.zookeeper.refuse(path, code, "create", "delete", "set", is_deep=True)
        _until_repaired(player, hostile.REFUSE, path, length_s, partial(cluster.zookeeper.lift, path))


def _disobey(player: Player, draw: Random) -> None:
    cluster, length_s = player.cluster, draw.choice(LENGTHS_S)
    broker_id, path = draw.choice(list(player.broker_ids)), topic_path(draw.choice(TOPICS))
    topic_id = object_of(cluster.zookeeper.read(path) or b"").get("topic_id")
    if topic_id is not None and not _is_harmed(player, path):
        refused = (broker_id, str(topic_id))
        cluster.disobeyed.add(refused)
        _until_repaired(player, hostile.DISOBEY, path, length_s, partial(cluster.disobeyed.discard, refused))


def _remove(player: Player, draw: Random) -> None:
    """Delete a tree node by node, as a tool does. The tool spares configurations that allow unclean elections."""
    zookeeper, path = player.cluster.zookeeper, hostile.removed_parent(draw)
    paths = hostile.below(path, zookeeper.tree.nodes)
    if any(b"true" in zookeeper.tree.nodes[one].data for one in paths if one.startswith("/config/")):
        return  # the moment at which the controller learns of the removal would be unknown
    if paths:
        player.cluster.fault(hostile.REMOVE, path)
        _delete(player, paths)


def _spoil_epoch(player: Player, draw: Random) -> None:
    zookeeper, length_s, garbage = player.cluster.zookeeper, draw.choice(LENGTHS_S), draw.choice(hostile.GARBAGE)
    node = zookeeper.tree.nodes.get(CONTROLLER_EPOCH)
    if node is None or _is_harmed(player, CONTROLLER_EPOCH):
        return
    before, made = node.data, node.czxid

    def put_right() -> None:
        now = zookeeper.tree.nodes.get(CONTROLLER_EPOCH)
        if now is not None and (now.czxid, now.data) == (made, garbage):
            zookeeper.commit(0, [Set(CONTROLLER_EPOCH, before, now.version)])

    _until_repaired(player, hostile.SPOIL_EPOCH, CONTROLLER_EPOCH, length_s, put_right)
    zookeeper.commit(0, [Set(CONTROLLER_EPOCH, garbage, node.version)])


def _delete_epoch(player: Player, draw: Random) -> None:
    """Delete the controller epoch, unless it is hidden. A controller that may not read the epoch receives no event, and
    finds it gone at the next write."""
    if player.cluster.zookeeper.read(CONTROLLER_EPOCH) is not None and not _is_harmed(player, CONTROLLER_EPOCH):
        player.cluster.fault(hostile.DELETE_EPOCH, can_move_seat=True)
        player.cluster.zookeeper.commit(0, [Delete(CONTROLLER_EPOCH, -1)])


def _drop_id(player: Player, draw: Random) -> None:
    """Remove a topic's id: while a controller is active and knows the id, or before the next controller, which has to
    ask. All replicas that were told of it have to be on disks, or an operator would have to know."""
    zookeeper, topic = player.cluster.zookeeper, draw.choice(TOPICS)
    with_seat, path = draw.random() < 0.5, topic_path(topic)
    data = hostile.without_id(zookeeper.read(path) or b"")
    if data is not None and not _is_harmed(player, path) and player.cluster.is_on_disks(topic):
        player.cluster.fault(hostile.DROP_ID, path)
        _commit(player, [Set(path, data, -1)], with_seat=with_seat)


def _rewrite_id(player: Player, draw: Random) -> None:
    """Give a topic another id, while a controller knows its own. An id that a controller finds as it begins is an
    operator's word, so the tool takes it back in the moment in which the seat falls vacant."""
    cluster, zookeeper, path = player.cluster, player.cluster.zookeeper, topic_path(draw.choice(TOPICS))
    others = [object_of(zookeeper.read(topic_path(one)) or b"").get("topic_id") for one in TOPICS]
    topic_id = draw.choice([draw_topic_id(draw), *(one for one in others if one)])
    node, length_s = zookeeper.tree.nodes.get(path), draw.choice(LENGTHS_S)
    data = None if node is None else hostile.with_id(node.data, topic_id)
    if node is None or data is None or _is_harmed(player, path) or cluster.seat_id not in cluster.active_ids:
        return
    what, made, own_id = f"{hostile.REWRITE_ID}: {path}", node.czxid, object_of(node.data)["topic_id"]

    def take_back() -> None:
        cluster.loop.call_soon(repair, player, what)

    def put_right() -> None:
        zookeeper.on_vacant.remove(take_back)
        now = zookeeper.tree.nodes.get(path)
        right = None if now is None or now.czxid != made else hostile.with_id(now.data, own_id)
        if now is not None and right is not None:
            zookeeper.commit(0, [Set(path, right, now.version)])

    zookeeper.on_vacant.append(take_back)
    cluster.spoiled[what] = put_right
    cluster.fault(hostile.REWRITE_ID, f"{path} {topic_id}", lasts_s=length_s)
    player.later(length_s, lambda: repair(player, what))
    zookeeper.commit(0, [Set(path, data, node.version)])


def _erase_states(player: Player, draw: Random) -> None:
    """Delete partition states, which have no watch. A tool announces the change, or the next controller finds them
    gone."""
    topic, with_seat = draw.choice(TOPICS), draw.random() < 0.5
    numbers = [one for one in sorted(player.assignment(topic)) if draw.random() < 0.7]
    nodes = player.cluster.zookeeper.tree.nodes
    gone = [one for one in numbers if state_path(topic, one) in nodes]
    if not gone or (not with_seat and ISR_NOTIFICATIONS not in nodes):
        return
    player.cluster.fault(hostile.ERASE_STATES, f"{topic_path(topic)} {gone}")
    ops: list[Op] = [Delete(state_path(topic, one), -1) for one in gone]
    announced = Create(f"{ISR_NOTIFICATIONS}/isr_change_", hostile.announcement_of(topic, gone), sequential=True)
    _commit(player, ops if with_seat else [*ops, announced], with_seat=with_seat)


def _commit(player: Player, ops: list[Op], *, with_seat: bool) -> None:
    if with_seat and player.cluster.seat_id is not None:
        player.cluster.fault("delete /controller", can_move_seat=True)
        ops = [*ops, Delete(CONTROLLER, -1)]
    player.cluster.zookeeper.commit(0, ops)


def _delete(player: Player, paths: list[str]) -> None:
    for path in paths:
        player.cluster.zookeeper.commit(0, [Delete(path, -1)])


def _assignments(player: Player) -> dict[str, list[int]]:
    return {topic: list(player.assignment(topic)) for topic in TOPICS}


HOSTILE: Final[dict[str, Inflict]] = {
    **{kind: partial(_forbid, kind=kind)
       for kind in (hostile.HIDE, hostile.LOCK, hostile.HIDE_SEAT, hostile.LOCK_SEAT)},
    hostile.REFUSE: _refuse, hostile.DISOBEY: _disobey, hostile.REMOVE: _remove, hostile.SPOIL_EPOCH: _spoil_epoch,
    hostile.DELETE_EPOCH: _delete_epoch, hostile.DROP_ID: _drop_id, hostile.REWRITE_ID: _rewrite_id,
    hostile.ERASE_STATES: _erase_states,
}  # fmt: skip
