"""The pictures of the report, each out of one or two tables of the answers. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from sparkjobs.answers.local import Answers
from sparkjobs.report.drawing import (
    LABEL_WIDTH,
    ROW,
    WIDTH,
    Span,
    clock,
    framed,
    heat_map,
    label,
    lasting,
    picture,
    title,
)

WORST: Final = 40
#: bars in one row that a page can hold and a person can tell apart
BARS: Final = 4_000
HEAT_COLUMNS: Final = 300
HEAT_ROWS: Final = 400
#: amber to red; the first is "nothing"
_HEAT: Final = [(0, 0, 0), *((255, 214 - step * 20, 90 - step * 6) for step in range(10))]
_PHASES: Final = (
    ("unnoticed", "last_seen_ms", "detected_ms", "from its last word until it was missed"),
    ("elected", "detected_ms", "last_elected_ms", "until the last of its partitions had another leader"),
    ("acked", "last_elected_ms", "last_acked_ms", "until every broker's own log follows it"),
)


def span_of(answers: Answers) -> Span | None:
    """From the first to the last thing that is known."""
    lives: Sequence[Any] = answers["broker_lives"]
    if not lives:
        return None
    return Span(min(one.from_ms for one in lives), max(one.last_seen_ms for one in lives))


def _outages(outages: Sequence[Any], span: Span, row: int) -> list[str]:
    """Each a bar; of more than can be told apart the longest of those that begin at one point."""
    at: dict[float, list[tuple[int, Any]]] = defaultdict(list)
    for number, one in enumerate(outages):
        end_ms = span.to_ms if one.end_ms is None else one.end_ms
        at[number if len(outages) <= BARS else round(span.x(one.start_ms))].append((end_ms, one))
    bars = []
    for alike in at.values():
        end_ms, one = max(alike, key=lambda pair: pair[0] - pair[1].start_ms)
        words = f"{one.topic}-{one.partition}: {clock(one.start_ms)}, {lasting(end_ms - one.start_ms)}"
        words += f", and {len(alike) - 1} about then, none longer" if len(alike) > 1 else ""
        bars.append(span.bar(row, one.start_ms, end_ms, "outage", words))
    return bars


def lanes(answers: Answers, span: Span) -> str:
    """Who was controller and which brokers lived; outages below."""
    tenures: Sequence[Any] = answers["controller_tenures"]
    lives: Sequence[Any] = answers["broker_lives"]
    brokers = sorted({one.broker for rows in (lives, tenures, _rows(answers, "failovers")) for one in rows})
    away, off = _rows(answers, "zookeeper_outages"), _rows(answers, "cluster_silences")
    rows = ["controller", *(f"broker {broker}" for broker in brokers), "without a leader", *["ZooKeeper"] * bool(away)]
    marks = []
    for index, one in enumerate(tenures):
        to_ms = span.to_ms if one.to_ms is None else one.to_ms
        words = f"broker {one.broker}, epoch {one.controller_epoch}: {clock(one.from_ms)} to {clock(one.to_ms)}"
        words += f", {one.why_ended or 'it holds the seat'}"
        marks.append(span.bar(0, one.from_ms, to_ms, f"seat seat{index % 2}", words))
        x = span.x(one.from_ms) + 3
        if span.x(to_ms) - x > 16:
            marks.append(f'<text class="inside" x="{x}" y="{ROW - 7}">{one.broker}</text>')
    for one in lives:
        row = 1 + brokers.index(one.broker)
        words = f"broker {one.broker}: {clock(one.from_ms)} to {clock(one.last_seen_ms)}, {one.ended}"
        marks.append(span.bar(row, one.from_ms, one.last_seen_ms, "life", words))
        if one.ended not in ("running", "expired"):
            marks.append(span.mark(row, one.last_seen_ms, f"end {one.ended}", f"broker {one.broker} {one.ended}"))
    for one in _rows(answers, "failovers"):
        if one.how == "expired":  # it lived on, so this is no end of a life
            words = f"broker {one.broker} lost its session, {clock(one.detected_ms)}"
            marks.append(span.mark(1 + brokers.index(one.broker), one.detected_ms, "end expired", words))
    marks += _outages(_rows(answers, "partition_outages"), span, 1 + len(brokers))
    for one in away:
        to_ms = span.to_ms if one.to_ms is None else one.to_ms
        words = f"ZooKeeper away: {clock(one.from_ms)}, {lasting(to_ms - one.from_ms)}"
        marks.append(span.bar(2 + len(brokers), one.from_ms, to_ms, "away", words))
    for one in off:
        words = f"no broker lived: {clock(one.from_ms)}, {lasting(one.to_ms - one.from_ms)}"
        marks.append(span.bar(0, one.from_ms, one.to_ms, "off", words))
    return picture(span, rows, marks, "Controllers and brokers over time")


def partitions(answers: Answers, span: Span) -> str:
    """The worst partitions: who was in sync, and when nobody led."""
    length: dict[tuple[str, int], int] = defaultdict(int)
    for one in _rows(answers, "partition_outages"):
        felt_ms = one.leader_last_seen_ms if one.leader_last_seen_ms is not None else one.start_lo_ms
        length[one.topic, one.partition] += (span.to_ms if one.end_ms is None else one.end_ms) - felt_ms
    worst = sorted(length, key=lambda key: (-length[key], key))[:WORST]
    full: dict[tuple[str, int], int] = defaultdict(int)
    for one in _rows(answers, "isr_timeline"):
        key = (one.topic, one.partition)
        full[key] = max(full[key], len(one.isr))
    marks = []
    rows = {key: row for row, key in enumerate(worst)}
    for one in _rows(answers, "isr_timeline"):
        row = rows.get((one.topic, one.partition))
        if row is not None:
            kind = (
                "gone" if one.leader == -1 else "whole" if len(one.isr) == full[one.topic, one.partition] else "shrunk"
            )
            words = f"{one.topic}-{one.partition} from {clock(one.from_ms)}: leader {one.leader}, "
            words += f"epoch {one.leader_epoch}, in sync {','.join(map(str, one.isr))}, version {one.version}"
            marks.append(span.bar(row, one.from_ms, span.to_ms if one.to_ms is None else one.to_ms, kind, words))
    for one in _rows(answers, "partition_outages"):
        row = rows.get((one.topic, one.partition))
        if row is not None:
            end_ms = span.to_ms if one.end_ms is None else one.end_ms
            if one.leader_last_seen_ms is not None:
                words = f"its leader, broker {one.first_broker}, was last heard {clock(one.leader_last_seen_ms)}"
                marks.append(span.bar(row, one.leader_last_seen_ms, one.start_ms, "felt", words))
            words = f"no leader from {clock(one.start_ms)} ({one.evidence}) for {lasting(end_ms - one.start_ms)}"
            words += f", {one.cause}"
            marks.append(span.bar(row, one.start_ms, end_ms, "outage", words))
    drawn = picture(span, [f"{topic}-{number}" for topic, number in worst], marks, "The worst partitions over time")
    rest = f"<p>{len(length) - WORST} more had outages: see the tables.</p>" if len(length) > WORST else ""
    return drawn + rest


def heat(answers: Answers, span: Span) -> str:
    """Partitions by time: the share of each cell in which clients had no leader."""
    cell_ms = max(1, -(-(span.to_ms - span.from_ms) // HEAT_COLUMNS))
    lost: dict[tuple[str, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for one in _rows(answers, "partition_outages"):
        from_ms = max(span.from_ms, one.leader_last_seen_ms or one.start_lo_ms)
        to_ms = span.to_ms if one.end_ms is None else one.end_ms
        for cell in range((from_ms - span.from_ms) // cell_ms, (to_ms - span.from_ms) // cell_ms + 1):
            start_ms = span.from_ms + cell * cell_ms
            overlap_ms = min(to_ms, start_ms + cell_ms) - max(from_ms, start_ms)
            lost[one.topic, one.partition][cell] += max(overlap_ms, 1)
    names = sorted(lost)[:HEAT_ROWS]
    cells = [[min(10, -(-10 * lost[name].get(cell, 0) // cell_ms)) for cell in range(HEAT_COLUMNS)] for name in names]
    if not cells:
        return "<p>No partition was without a leader.</p>"
    step = max(1, 200 // len(names)) if len(names) < 60 else 4
    height = len(names) * max(step, 4)
    width = WIDTH - LABEL_WIDTH - 10
    box = f'viewBox="0 0 {WIDTH} {height + 20}" role="img" aria-label="Share of time without a leader"'
    image = f'<image class="heat" href="{heat_map(cells, _HEAT)}" x="{LABEL_WIDTH}" y="0" width="{width}" '
    image += f'height="{height}" preserveAspectRatio="none"/>'
    topics, free_y = [], 0.0
    for index, (topic, _) in enumerate(names):
        if index == 0 or names[index - 1][0] != topic:
            y = index * height / len(names)
            if y >= free_y:  # the name of a topic of one row would stand on the next one's
                topics.append(f'<text class="label" x="{LABEL_WIDTH - 8}" y="{y + 12:.0f}">{escape(topic)}</text>')
                free_y = y + 13
            topics.append(f'<line class="grid" x1="0" x2="{WIDTH}" y1="{y:.0f}" y2="{y:.0f}"/>')
    note = (
        f"<p>A cell is {lasting(cell_ms)}; a row is a partition that had an outage. Darker: a larger share of it.</p>"
    )
    return framed(f"<svg {box}>{span.axis(height)}{''.join(topics)}{image}</svg>") + note


def waterfalls(answers: Answers) -> str:
    """Each failover from the broker's last word on, on one scale."""
    found: list[Any] = [one for one in _rows(answers, "failovers") if one.last_seen_ms is not None]
    found = sorted(found, key=lambda one: one.detected_ms)[-WORST:]
    if not found:
        return "<p>No broker went.</p>"
    longest = max((one.last_acked_ms or one.last_elected_ms or one.detected_ms) - one.last_seen_ms for one in found)
    width = WIDTH - LABEL_WIDTH - 160
    marks = []
    for row, one in enumerate(found):
        for kind, begins, ends, words in _PHASES:
            from_ms, to_ms = getattr(one, begins), getattr(one, ends)
            if from_ms is None or to_ms is None or to_ms < from_ms:
                continue
            x = LABEL_WIDTH + (from_ms - one.last_seen_ms) / max(1, longest) * width
            length = max(2.0, (to_ms - from_ms) / max(1, longest) * width)
            place = f'x="{x:.1f}" y="{row * ROW + 4}" width="{length:.1f}" height="{ROW - 8}"'
            marks.append(f'<rect class="{kind}" {place}>{title(f"{lasting(to_ms - from_ms)} {words}")}</rect>')
        end_ms = one.last_acked_ms or one.last_elected_ms or one.detected_ms
        x = LABEL_WIDTH + (end_ms - one.last_seen_ms) / max(1, longest) * width + 8
        words = f"{lasting(end_ms - one.last_seen_ms)}, {one.moved} moved"
        words += f", {one.left_offline} left" if one.left_offline else ""
        marks.append(f'<text class="note" x="{x:.1f}" y="{row * ROW + 15}">{words}</text>')
        seat = " ♔" if one.was_controller else ""
        marks.append(label(row, f"{clock(one.detected_ms)[:8]} broker {one.broker}{seat}"))
    box = f'viewBox="0 0 {WIDTH} {len(found) * ROW}" role="img" aria-label="Failovers by phase"'
    legend = "".join(f'<span><i class="{kind}"></i>{escape(words)}</span>' for kind, _, _, words in _PHASES)
    return f'<p class="legend">{legend}<span>♔ it was the controller</span></p>' + framed(
        f"<svg {box}>{''.join(marks)}</svg>"
    )


def takeovers(answers: Answers) -> str:
    """What each new controller did before it was one, on one scale."""
    found: dict[tuple[str, int, int], list[Any]] = {}
    for one in _rows(answers, "controller_phases"):
        found.setdefault((one.cluster, one.controller_epoch, one.broker), []).append(one)
    shown = list(found.items())[-WORST:]
    if not shown:
        return "<p>No line tells of a takeover.</p>"
    ends = {key: max(one.from_ms if one.to_ms is None else one.to_ms for one in phases) for key, phases in shown}
    longest = max(1, *(ends[key] - phases[0].from_ms for key, phases in shown))
    width = WIDTH - LABEL_WIDTH - 160
    marks = []
    for row, (key, phases) in enumerate(shown):
        begun_ms = phases[0].from_ms
        for number, one in enumerate(phases):
            took_ms = (one.from_ms if one.to_ms is None else one.to_ms) - one.from_ms
            x = LABEL_WIDTH + (one.from_ms - begun_ms) / longest * width
            place = f'x="{x:.1f}" y="{row * ROW + 4}" width="{max(1.0, took_ms / longest * width):.1f}"'
            words = title(f"{one.phase}: {lasting(took_ms)}")
            marks.append(f'<rect class="seat{number % 2}" {place} height="{ROW - 8}">{words}</rect>')
        slowest = max(phases, key=lambda one: one.took_ms or 0.0)
        x = LABEL_WIDTH + (ends[key] - begun_ms) / longest * width + 8
        words = f"{lasting(ends[key] - begun_ms)}, most of it: {escape(slowest.phase)}"
        marks.append(f'<text class="note" x="{x:.1f}" y="{row * ROW + 15}">{words}</text>')
        marks.append(label(row, f"{clock(begun_ms)[:8]} broker {key[2]}, epoch {key[1]}"))
    box = f'viewBox="0 0 {WIDTH} {len(shown) * ROW}" role="img" aria-label="Takeovers by phase"'
    return framed(f"<svg {box}>{''.join(marks)}</svg>")


def _rows(answers: Answers, table: str) -> Sequence[Any]:
    return answers[table]
