"""Both state machines with the logs' counts: how often each arrow was taken, and how long states lasted.

The place of a state and the bend of an arrow are data here; the arrows themselves follow from the tables. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import hypot
from typing import Any, Final, NamedTuple

from sparkjobs.report.markup import ROWS_SHOWN, WIDTH, counted, framed, lasting, legend, row_of, table_of, title
from sparkjobs.rules.rules import Answers
from sparkjobs.rules.state_machines import IN_OLDER, IN_TABLE, LEGAL, MACHINE_OF, OLDER, PARTITION, REPLICA, STATES

_NODE_WIDTH: Final = 190
_NODE_HEIGHT: Final = 44
_Point = tuple[float, float]


class _Drawing(NamedTuple):
    """Where a machine's states stand, and which arrows are bent, to which side and how far."""

    height: int
    places: dict[str, _Point]
    bends: dict[tuple[str, str], float]
    loops: dict[str, _Point]  # where the arrow from a state to itself is: to which side of it


_DRAWINGS: Final = {
    PARTITION: _Drawing(
        310,
        {
            "NonExistentPartition": (110, 160),
            "NewPartition": (420, 160),
            "OnlinePartition": (800, 80),
            "OfflinePartition": (800, 240),
        },
        {
            ("OnlinePartition", "OfflinePartition"): -34,
            ("OfflinePartition", "OnlinePartition"): -34,
            ("OfflinePartition", "NonExistentPartition"): -90,
        },
        {"OfflinePartition": (1, 0)},
    ),
    REPLICA: _Drawing(
        460,
        {
            "NonExistentReplica": (110, 80),
            "NewReplica": (390, 80),
            "OnlineReplica": (700, 80),
            "OfflineReplica": (700, 230),
            "ReplicaDeletionIneligible": (700, 380),
            "ReplicaDeletionStarted": (960, 230),
            "ReplicaDeletionSuccessful": (960, 380),
        },
        {
            ("OnlineReplica", "OfflineReplica"): -34,
            ("OfflineReplica", "OnlineReplica"): -34,
            ("OfflineReplica", "ReplicaDeletionIneligible"): -34,
            ("ReplicaDeletionIneligible", "OfflineReplica"): -34,
            ("ReplicaDeletionIneligible", "OnlineReplica"): -260,
            ("ReplicaDeletionSuccessful", "NonExistentReplica"): -390,
        },
        {"OfflineReplica": (-1, 0)},
    ),
}
#: of an arrow that no table has
_BEND_OF_OTHERS: Final = 70
_KINDS: Final = {IN_TABLE: "taken", IN_OLDER: "older"}
_ARROWS: Final = (
    ("taken", "a move, and how often"),
    ("idle", "a move that these logs do not tell"),
    ("older", "a move of older Kafkas alone"),
    ("odd", "a move that no table has"),
)
_HEADINGS: Final = {PARTITION: "Partitions", REPLICA: "Replicas"}


class _Moves(NamedTuple):
    """Between two states."""

    times: int
    known_as: str
    causes: Counter[str]


def machines(answers: Answers) -> str:
    """Both drawings, and the numbers below them."""
    parts = [legend(_ARROWS)]
    for machine, drawing in _DRAWINGS.items():
        stays = _standing(answers, machine)
        moves = _moves_of(answers, machine)
        parts.append(f"<h3>{_HEADINGS[machine]}</h3>")
        if not moves:
            parts.append(f'<p class="soft">{_SILENT[machine]}</p>')
        parts.append(_drawn(machine, drawing, moves, stays))
    return "".join(parts) + _times(answers) + _causes(answers)


_SILENT: Final = {
    PARTITION: "No line of these logs tells of a partition's move: that is a controller's state-change.log.",
    REPLICA: "No line of these logs tells of a replica's move. Kafka's state-change.log has them at TRACE.",
}


def _moves_of(answers: Answers, machine: str) -> dict[tuple[str | None, str], _Moves]:
    found: dict[tuple[str | None, str], _Moves] = {}
    for one in _rows(answers, "state_transitions"):
        if one.machine == machine:
            known = found.get((one.source, one.target), _Moves(0, one.known_as, Counter()))
            known.causes[one.cause or ""] += one.times
            found[one.source, one.target] = known._replace(times=known.times + one.times)
    return found


class _StateCounts(NamedTuple):
    """How many were in a state at some time, and how many at the end."""

    ever: int
    at_end: int


def _standing(answers: Answers, machine: str) -> dict[str, _StateCounts]:
    """By state, over all clusters."""
    found: dict[str, _StateCounts] = {}
    for one in _rows(answers, "time_in_state"):
        if one.machine == machine:
            known = found.get(one.state, _StateCounts(0, 0))
            found[one.state] = _StateCounts(known.ever + one.subjects, known.at_end + one.lasting)
    return found


def _drawn(
    machine: str, drawing: _Drawing, moves: dict[tuple[str | None, str], _Moves], stays: dict[str, _StateCounts]
) -> str:
    pairs = [pair for pair in sorted(LEGAL) if MACHINE_OF[pair[1]] == machine]
    others = [(source, target) for source, target in moves if source is not None and (source, target) not in LEGAL]
    marks, notes = list[str](), list[str]()
    for source, target in (*pairs, *sorted(others)):
        if source not in drawing.places or target not in drawing.places:
            continue
        arrow, note = _arrow(machine, drawing, source, target, moves.get((source, target)))
        marks.append(arrow)
        notes.append(note)
    nodes = [_node(state, drawing.places[state], stays.get(state), machine) for state in STATES[machine]]
    heads = "".join(
        f'<marker id="{machine}-{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path class="head {kind}" d="M0 0L8 4L0 8z"/></marker>'
        for kind, _ in _ARROWS
    )
    words = f"State machine of {_HEADINGS[machine].lower()}, with the number of moves on each arrow"
    box = f'viewBox="0 0 {WIDTH} {drawing.height}" role="img" aria-label="{words}"'
    return framed(f"<svg {box}><defs>{heads}</defs>{''.join((*marks, *nodes, *notes))}</svg>")


def _arrow(machine: str, drawing: _Drawing, source: str, target: str, moves: _Moves | None) -> tuple[str, str]:
    """Returns the arrow, and the number that stands on it."""
    kind = "idle" if moves is None else _KINDS.get(moves.known_as, "odd")
    words = f"{source} to {target}: {'not in these logs' if moves is None else _said(moves)}"
    path, (x, y) = _curve(drawing, source, target)
    line = f'<path class="arrow {kind}" d="{path}" marker-end="url(#{machine}-{kind})">{title(words)}</path>'
    if moves is None:
        return line, ""
    return line, f'<text class="count {kind}" x="{x:.0f}" y="{y + 4:.0f}">{moves.times:,}{title(words)}</text>'


def _said(moves: _Moves) -> str:
    causes = ", ".join(f"{cause.replace('_', ' ')} {times:,}" for cause, times in moves.causes.most_common() if cause)
    return counted(moves.times, "time") + (f" ({causes})" if causes else "")


def _curve(drawing: _Drawing, source: str, target: str) -> tuple[str, _Point]:
    """From border to border, and where its number stands."""
    start, end = drawing.places[source], drawing.places[target]
    if source == target:
        across, down = drawing.loops.get(source, (0, -1))
        x, y = start[0] + across * _NODE_WIDTH / 2, start[1] + down * _NODE_HEIGHT / 2
        along = (22, 0) if down else (0, 12)
        far = (x + across * 42, y + down * 42)
        path = f"M{x - along[0]} {y - along[1]}C{far[0] - 1.5 * along[0]} {far[1] - 1.5 * along[1]} "
        path += f"{far[0] + 1.5 * along[0]} {far[1] + 1.5 * along[1]} {x + along[0]} {y + along[1]}"
        return path, (x + across * 32, y + down * 32)
    default = 0 if (source, target) in LEGAL else _BEND_OF_OTHERS
    bend, length = drawing.bends.get((source, target), default), hypot(end[0] - start[0], end[1] - start[1])
    aside = (-(end[1] - start[1]) / length * bend, (end[0] - start[0]) / length * bend)
    control = ((start[0] + end[0]) / 2 + aside[0], (start[1] + end[1]) / 2 + aside[1])
    first, last = _border(start, control), _border(end, control)
    middle = (first[0] / 4 + control[0] / 2 + last[0] / 4, first[1] / 4 + control[1] / 2 + last[1] / 4)
    path = f"M{first[0]:.1f} {first[1]:.1f}Q{control[0]:.1f} {control[1]:.1f} {last[0]:.1f} {last[1]:.1f}"
    return path, middle


def _border(node: _Point, towards: _Point) -> _Point:
    """Returns where a line from the middle of a state leaves it."""
    dx, dy = towards[0] - node[0], towards[1] - node[1]
    scale = min(
        _NODE_WIDTH / 2 / abs(dx) if dx else float("inf"), (_NODE_HEIGHT / 2 + 1) / abs(dy) if dy else float("inf")
    )
    return node[0] + dx * scale, node[1] + dy * scale


def _node(state: str, place: _Point, stays: _StateCounts | None, machine: str) -> str:
    x, y = place[0] - _NODE_WIDTH / 2, place[1] - _NODE_HEIGHT / 2
    box = f'x="{x}" y="{y}" width="{_NODE_WIDTH}" height="{_NODE_HEIGHT}" rx="7"'
    name = f'<text class="state-name" x="{place[0]}" y="{place[1] - (3 if stays else -4)}">{state}</text>'
    if stays is None:
        return f'<rect class="state" {box}>{title(state)}</rect>{name}'
    words = f"{counted(stays.ever, machine)}, {stays.at_end:,} at the end"
    below = f'<text class="state-note" x="{place[0]}" y="{place[1] + 13}">{words}</text>'
    return f'<rect class="state" {box}>{title(f"{state}: {words}")}</rect>{name}{below}'


def _times(answers: Answers) -> str:
    stays = sorted(_rows(answers, "time_in_state"), key=lambda one: (one.cluster, _ORDER.get(one.state, len(_ORDER))))
    rows = [
        row_of(
            one.state,
            (one.subjects, f"{one.subjects:,}"),
            (one.stays, f"{one.stays:,}"),
            (one.known_ms, lasting(one.known_ms)),
            (one.at_most_ms, lasting(one.at_most_ms)),
            (one.longest_ms, lasting(one.longest_ms)),
            (one.lasting, f"{one.lasting:,}"),
            _EVIDENCE.get(one.evidence, one.evidence).format(counted(one.unbegun, "stay")),
        )
        for one in stays[:ROWS_SHOWN]
    ]
    heads = ("state", "how many", "stays", "in sum, for certain", "at most", "longest, at most", "at the end", "known")
    return "<h3>How long in each state</h3>" + table_of(heads, rows, len(stays))


_EVIDENCE: Final = {
    "exact": "exactly",
    "bounded": "within bounds: not every move has a line",
    "unknown": "{} began before the first line",
}


_ORDER: Final = {state: number for number, state in enumerate(MACHINE_OF)}


def _causes(answers: Answers) -> str:
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for one in _rows(answers, "state_transitions"):
        if one.cause is not None or one.known_as != IN_TABLE:
            cause = one.cause or OLDER.get((one.source, one.target), "no table has it")
            counts[one.machine, one.source or "?", one.target, cause] += one.times
    ordered = sorted(counts.items(), key=lambda item: (item[0][0], -item[1], item[0]))
    rows = [
        row_of(source, target, cause.replace("_", " "), (times, f"{times:,}"))
        for (_, source, target, cause), times in ordered[:ROWS_SHOWN]
    ]
    heads = ("from", "to", "cause", "times")
    return "<h3>Why they moved</h3>" + table_of(heads, rows, len(ordered)) if rows else ""


def _rows(answers: Answers, table: str) -> Sequence[Any]:
    return answers[table]
