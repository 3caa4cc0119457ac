"""Faults that random schedules draw, aimed by role; each ends by itself, and `heal` ends all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from controller.core.operations import Delete
from tests.faults.malformed_znodes import SPOILED
from tests.faults.simulate.player import Player
from tests.faults.simulate.spoiling import repair, spoil

Inflict = Callable[[Player, Random], None]


def _kill(player: Player, draw: Random, *, loses_disk: bool = False) -> None:
    """F1, F18: and back after nothing to two time-outs."""
    cluster, member = player.cluster, player.some(draw)
    after_s = draw.choice((0.0, 0.05, 1.0, 9.0))
    if member is not None:
        cluster.fault("kill", member.broker_id, can_move_seat=True)
        # while a tool has dropped a topic's id, disks are all that knows it
        cluster.kill(member.broker_id, loses_disk=loses_disk and not cluster.misses_an_id())
        player.later(after_s, lambda: cluster.start(member.broker_id))


def _kill_disk(player: Player, draw: Random) -> None:
    """F1, with an empty disk afterwards."""
    _kill(player, draw, loses_disk=True)


def _stop(player: Player, draw: Random) -> None:
    """A controlled shutdown, and a start later."""
    cluster, member = player.cluster, player.some(draw)
    after_s = draw.uniform(1.0, 9.0)
    if member is not None:
        cluster.fault("stop", member.broker_id, can_move_seat=True)
        member.stop()
        player.later(after_s, lambda: cluster.start(member.broker_id))


def _freeze(player: Player, draw: Random) -> None:
    """F2, F3, F20: for less or for more than the session time-out."""
    member, length_s = player.some(draw), draw.choice((0.5, 2.0, 3.9, 5.0, 9.0))
    if member is not None:
        player.cluster.fault("freeze", member.broker_id, can_move_seat=True, lasts_s=length_s)
        member.process.freeze()
        player.later(length_s, lambda: None if member.process.is_dead else member.process.thaw())


def _expire(player: Player, draw: Random) -> None:
    """F4."""
    member = player.some(draw)
    if member is not None and member.zk is not None:
        player.cluster.fault("expire", member.broker_id, can_move_seat=True)
        player.cluster.zookeeper.expire(member.zk.session_id)


def _cut(player: Player, draw: Random) -> None:
    """F5: silently or loudly, for less or for more than the session time-out."""
    member, length_s, is_loud = player.some(draw), draw.choice((0.3, 2.0, 6.0)), draw.random() < 0.5
    if member is not None:
        broker_id = member.broker_id
        player.cluster.fault("cut", broker_id, can_move_seat=True, lasts_s=length_s)
        player.cluster.cut(broker_id, is_loud=is_loud)
        player.later(length_s, lambda: player.cluster.heal_zookeeper(broker_id))


def _lose_answer(player: Player, draw: Random) -> None:
    """F7: the next request is executed, and its answer lost."""
    member = player.some(draw)
    if member is not None and member.zk is not None:
        player.cluster.fault("lose answer", member.broker_id)
        member.zk.lose_next_answer()


def _restart_zookeeper(player: Player, draw: Random) -> None:
    """F8: every connection breaks, sessions live on."""
    player.cluster.fault("restart ZooKeeper")
    for client in list(player.cluster.zookeeper.clients):
        client.disconnect()


def _slow_zookeeper(player: Player, draw: Random) -> None:
    """F10, F11."""
    member, length_s, slow_s = player.some(draw), draw.uniform(1.0, 5.0), draw.choice((0.05, 0.4))
    if member is not None and (client := member.zk) is not None:
        player.cluster.fault("slow ZooKeeper", member.broker_id, lasts_s=length_s)
        client.latency_s = (slow_s / 10, slow_s)
        player.later(length_s, lambda: setattr(client, "latency_s", type(client).latency_s))


def _link_fault(player: Player, draw: Random, kind: str, **values: Any) -> None:
    """F6, F12 to F15, between two brokers in one direction."""
    member, cluster, length_s = player.some(draw), player.cluster, draw.choice((0.5, 3.0, 8.0))
    others = [one for one in cluster.broker_ids if member is not None and one != member.broker_id]
    if member is None:
        return
    link = cluster.network.link(member.name, f"b{draw.choice(others)}:80")
    cluster.fault(kind, member.broker_id, lasts_s=length_s)
    before = {name: getattr(link, name) for name in values}
    for name, value in values.items():
        setattr(link, name, value)
    player.later(length_s, lambda: [setattr(link, name, value) for name, value in before.items()] and None)


def _seat_deleted(player: Player, draw: Random) -> None:
    """F17: an operator deletes `/controller`."""
    if player.cluster.seat_id is not None:
        player.cluster.fault("delete /controller", can_move_seat=True)
        player.cluster.zookeeper.commit(0, [Delete("/controller", -1)])


def _spoil(player: Player, draw: Random, kind: str) -> None:
    """F17: write nonsense into data that the controller trusts, and restore the data later."""
    length_s = draw.choice((0.5, 4.0, 9.0))
    if (path := spoil(player, draw, kind)) is not None:
        player.cluster.fault(kind, path, lasts_s=length_s)
        player.later(length_s, lambda: repair(player, path))


FAULTS: Final[dict[str, Inflict]] = {
    "kill": _kill, "kill with its disk": _kill_disk, "stop": _stop, "freeze": _freeze, "expire": _expire, "cut": _cut,
    "lose answer": _lose_answer, "restart ZooKeeper": _restart_zookeeper, "slow ZooKeeper": _slow_zookeeper,
    "delete /controller": _seat_deleted,
    **{kind: partial(_spoil, kind=kind) for kind in SPOILED},
    "cut link": lambda player, draw: _link_fault(player, draw, "cut link", is_cut=True),
    "lose answers": lambda player, draw: _link_fault(player, draw, "lose answers", loses_answers=True),
    "slow link": lambda player, draw: _link_fault(player, draw, "slow link", delay_s=draw.choice((0.1, 1.0))),
    "double": lambda player, draw: _link_fault(player, draw, "double", doubles=0.5),
    "garble": lambda player, draw: _link_fault(player, draw, "garble", garbles=0.5),
}  # fmt: skip
