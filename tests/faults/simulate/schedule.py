"""Draws the acts of a run from its seed: operations, faults aimed by role, and the pauses between them.

A role (the active controller) is resolved when an act is due. All else is drawn. Same seed, same run.
"""

from __future__ import annotations

from random import Random
from typing import Final

from tests.faults.hostile import create_big
from tests.faults.operations import OPERATIONS
from tests.faults.simulate.cluster import SimCluster
from tests.faults.simulate.harms import FAULTS
from tests.faults.simulate.hostile import HOSTILE
from tests.faults.simulate.player import Player, pause

ACTS: Final = 14
OPERATIONS_SHARE: Final = 0.55
#: beside a hostile tool, so many faults are the tool's; and so many schedules have a big topic
HOSTILE_SHARE: Final = 0.6
BIG_SHARE: Final = 0.2
#: between two acts: within one step of the controller, or long enough for it to notice
PAUSES_S: Final = (0.0, 0.003, 0.02, 0.2, 1.0, 2.5, 5.0)


async def play_schedule(
    cluster: SimCluster, seed: str, *, operations_share: float = OPERATIONS_SHARE, tool: Random | None = None
) -> None:
    """Create a topic, play the drawn acts, heal, and wait for every answer. A hostile tool draws from a source of its
    own."""
    player = Player(cluster, seed)
    draw = player.random
    _operate(player, "create")
    if tool is not None and tool.random() < BIG_SHARE and (big := create_big(player, tool)) is not None:
        player.begin(*big)
    await pause(cluster, 0.5)
    for _ in range(ACTS):
        if draw.random() < operations_share:
            _operate(player, draw.choice(sorted(OPERATIONS)))
        elif tool is not None and tool.random() < HOSTILE_SHARE:
            HOSTILE[tool.choice(sorted(HOSTILE))](player, tool)
        else:
            FAULTS[draw.choice(sorted(FAULTS))](player, draw)
        await pause(cluster, draw.choice(PAUSES_S) * draw.random())
    cluster.heal()
    await player.finish()


async def play_beside_a_hostile_tool(cluster: SimCluster, seed: str) -> None:
    """The same with the faults of `hostile.py`, most of the time."""
    await play_schedule(cluster, seed, tool=Random(f"{seed} hostile tool"))


async def play_operations(cluster: SimCluster, seed: str) -> None:
    """The same without a fault."""
    await play_schedule(cluster, seed, operations_share=1.0)


def _operate(player: Player, name: str) -> None:
    asked = OPERATIONS[name](player, player.random)
    if asked is not None:
        player.begin(*asked)
