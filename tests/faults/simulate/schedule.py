"""Draws what happens in a run from its seed: operations, faults aimed by role, and the pauses between them.

Who is meant by a role (the active controller) is looked up when it is due; all else is drawn. Same seed, same run.
"""

from __future__ import annotations

from typing import Final

from tests.faults.operations import OPERATIONS
from tests.faults.simulate.cluster import SimCluster
from tests.faults.simulate.harms import FAULTS
from tests.faults.simulate.player import Player, pause

ACTS: Final = 14
OPERATIONS_SHARE: Final = 0.55
#: between two acts: within one step of the controller, or long enough for it to notice
PAUSES_S: Final = (0.0, 0.003, 0.02, 0.2, 1.0, 2.5, 5.0)


async def play_schedule(cluster: SimCluster, seed: str, *, operations_share: float = OPERATIONS_SHARE) -> None:
    """Begin with a topic, do what is drawn, heal, and wait for every answer."""
    player = Player(cluster, seed)
    draw = player.random
    _operate(player, "create")
    await pause(cluster, 0.5)
    for _ in range(ACTS):
        if draw.random() < operations_share:
            _operate(player, draw.choice(sorted(OPERATIONS)))
        else:
            FAULTS[draw.choice(sorted(FAULTS))](player, draw)
        await pause(cluster, draw.choice(PAUSES_S) * draw.random())
    cluster.heal()
    await player.finish()


async def play_operations(cluster: SimCluster, seed: str) -> None:
    """The same without a fault."""
    await play_schedule(cluster, seed, operations_share=1.0)


def _operate(player: Player, name: str) -> None:
    asked = OPERATIONS[name](player, player.random)
    if asked is not None:
        player.begin(*asked)
