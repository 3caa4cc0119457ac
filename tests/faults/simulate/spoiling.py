"""F17 on the data that a simulated controller trusts: nonsense in a topic, a state or a configuration, and its repair.

The cluster keeps the repairs, so that healing it restores all of the data. Only the given random source is used.
"""

from __future__ import annotations

from random import Random

from controller.core.operations import Create, Op, Set
from tests.faults.malformed_znodes import CONFIG, Target, can_be_spoiled, nonsense_for, target_for
from tests.faults.operations import TOPICS
from tests.faults.simulate.player import Player


def spoil(player: Player, draw: Random, kind: str, *, topics: tuple[str, ...] = TOPICS) -> str | None:
    """Return the path that is malformed from now until `repair`. Returns None when there is no such znode."""
    cluster = player.cluster
    target = target_for(kind, {topic: list(player.assignment(topic)) for topic in topics}, draw)
    node = None if target is None else cluster.zookeeper.tree.nodes.get(target.path)
    if target is None or node is None or target.path in cluster.spoiled or not can_be_spoiled(kind, node.data):
        return None
    before, made, nonsense = node.data, node.czxid, nonsense_for(node.data, draw)
    # the controller finds a malformed state at its next write there; a configuration is changed by a tool that
    # announces it
    is_announced = kind == CONFIG or draw.random() < 0.5
    if cluster.zookeeper.commit(0, _writes(target, nonsense, node.version, is_announced=is_announced)).refused:
        return None

    def put_right() -> None:
        now = cluster.zookeeper.tree.nodes.get(target.path)
        if now is None or (now.czxid, now.data) != (made, nonsense):
            return
        if target.parent and target.parent not in cluster.zookeeper.tree.nodes:  # another tool removed it
            cluster.zookeeper.commit(0, [Create(target.parent, b"")])
        answer = cluster.zookeeper.commit(0, _writes(target, before, now.version, is_announced=True))
        assert answer.refused is None, f"{target.path} is not put right: {answer.refused}"

    cluster.spoiled[target.path] = put_right
    return target.path


def repair(player: Player, path: str) -> None:
    """Unless it was healed already."""
    if (put_right := player.cluster.spoiled.pop(path, None)) is not None:
        put_right()


def _writes(target: Target, data: bytes, version: int, *, is_announced: bool) -> list[Op]:
    ops: list[Op] = [Set(target.path, data, version)]
    if is_announced and target.parent:
        ops.append(Create(f"{target.parent}/{target.prefix}", target.notice, sequential=True))
    return ops
