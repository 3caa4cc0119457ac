"""A schedule, drawn from its seed before anything runs: the cluster's shape, which harms fall when on which role, and
the clients' operations. Pure: the same seed is the same schedule.

A role is resolved when the fault is due, and the subject of an operation is chosen among the topics of that moment. The
choices of both come from generators of their own, which are part of the schedule.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from tests.faults.chaos.harms import HARMS
from tests.faults.operations import OPERATIONS

#: load alone, then faults
WARM_S: Final = 6.0
FIRE_S: Final = 50.0
CLIENTS: Final = 2
SECRETS_SHARE: Final = 1 / 3
#: beside a hostile tool, so many faults are the tool's; and so many rounds have a big topic
HOSTILE_SHARE: Final = 0.5
BIG_SHARE: Final = 0.3
#: A broker with an empty disk may be back before anybody notices that it was gone, and lead on with less: with records
#: that is a loss that no election made (`tests/RECORD.md`, 2026-11-20).
NOT_WITH_RECORDS: Final = ("kill with its disk",)
#: of so many rounds every line is there in the end
QUIET_JOURNALS: Final = 0.75
#: two faults at once, nearly at once, or one after the other
PAUSES_S: Final = (0.0, 0.3, 1.5, 4.0, 7.0)
ASK_PAUSES_S: Final = (0.0, 0.1, 0.4, 1.2)


class Act(NamedTuple):
    """One fault. `at_s` counts from the first moment of fire."""

    at_s: float
    harm: str
    role: str
    length_s: float
    seed: str


class Ask(NamedTuple):
    """One operation, so long after the one before it was answered."""

    pause_s: float
    operation: str
    seed: str


class Schedule(NamedTuple):
    """All of a round."""

    seed: str
    brokers: int
    servers: int
    balances: bool
    #: whether writes need a token, and requests between brokers are signed
    has_secrets: bool
    #: brokers keep records, and third-party clients produce and consume
    has_records: bool
    #: among the faults are those of a hostile tool
    is_hostile: bool
    #: begins with a topic of many more partitions than all others have
    has_big_topic: bool
    acts: tuple[Act, ...]
    asks: tuple[tuple[Ask, ...], ...]


def schedule_for(seed: str, *, fire_s: float = FIRE_S, has_records: bool = False, is_hostile: bool = False) -> Schedule:
    """A hostile tool draws apart: without its own the faults are the same ones, at the same moments."""
    draw = Random(f"{seed} shape")
    brokers, servers, balances = draw.choice((3, 3, 4)), draw.choice((1, 3)), draw.random() < 0.3
    has_secrets = draw.random() < SECRETS_SHARE
    tool = Random(f"{seed} hostile tool")
    has_big_topic = is_hostile and tool.random() < BIG_SHARE
    acts: list[Act] = []
    at_s = 0.0
    draw = Random(f"{seed} faults")
    hostile_names = [name for name in sorted(HARMS) if HARMS[name].is_hostile]
    names = [name for name in sorted(HARMS) if not (has_records and name in NOT_WITH_RECORDS)]
    names = [name for name in names if name not in hostile_names]
    if draw.random() < QUIET_JOURNALS:  # a lost line excuses from some rules
        names = [name for name in names if not HARMS[name].loses_lines]
    if servers == 1:  # there is neither a leader nor a minority of one
        names = [name for name in names if "ority" not in name]
    while at_s < fire_s:
        acts.append(_act(at_s, draw.choice(names), draw, f"{seed} act {len(acts)}"))
        if is_hostile and tool.random() < HOSTILE_SHARE:
            acts[-1] = _act(at_s, tool.choice(hostile_names), tool, acts[-1].seed)
        at_s += draw.choice(PAUSES_S) * draw.uniform(0.5, 1.0)
    shape = (brokers, servers, balances, has_secrets, has_records, is_hostile, has_big_topic)
    return Schedule(seed, *shape, tuple(acts), _asks_for(seed, fire_s))


def _act(at_s: float, harm: str, draw: Random, seed: str) -> Act:
    drawn = HARMS[harm]
    return Act(at_s, harm, draw.choice(drawn.roles), draw.choice(drawn.lengths_s), seed)


def _asks_for(seed: str, fire_s: float) -> tuple[tuple[Ask, ...], ...]:
    """More than there is time for: a client asks until the fire is over."""
    count = int((WARM_S + fire_s) / 0.1)
    names = sorted(OPERATIONS)
    lists = []
    for client in range(CLIENTS):
        draw = Random(f"{seed} client {client}")
        asks = (
            Ask(draw.choice(ASK_PAUSES_S), draw.choice(names), f"{seed} client {client} ask {n}") for n in range(count)
        )
        lists.append(tuple(asks))
    return tuple(lists)
