"""The pictures of the report, each out of one or two tables of the answers. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Final, NamedTuple

from sparkjobs.report.markup import (
    LABEL_WIDTH,
    ROW,
    WIDTH,
    Span,
    framed,
    heat_map,
    label,
    lasting,
    legend,
    picture,
    span_of,
    title,
)
from sparkjobs.rules.rules import Answers

WORST: Final = 40
#: bars in a picture that a page can hold and a person can tell apart; its rows share them
BARS: Final = 1_500
#: how many phases have colours of their own
PHASE_COLOURS: Final = 8
#: brokers that have a row of their own
LANES: Final = 60
HEAT_COLUMNS: Final = 300
HEAT_ROWS: Final = 400
#: amber to red; the first is "nothing"
_HEAT: Final = [(0, 0, 0), *((255, 214 - step * 20, 90 - step * 6) for step in range(10))]
_PHASES: Final = (
    ("unnoticed", "last_seen_ms", "detected_ms", "silent until it was missed: for part of it, it may have lived"),
    ("elected", "detected_ms", "last_elected_ms", "until the last of its partitions had another leader"),
    ("acked", "last_elected_ms", "last_acked_ms", "until every broker's own log follows it"),
)


class _Bar(NamedTuple):
    """One bar for all stretches that begin at about the same place."""

    from_ms: int
    to_ms: int
    of: Any
    others: int = 0  # that it hides

    @property
    def more(self) -> str:
        """The last of its words."""
        return f", and {self.others} about then, none longer" if self.others else ""


def _told_apart(bars: Sequence[_Bar], span: Span, room: int) -> list[_Bar]:
    """All, if there is room in their row; else the longest of those that begin at one place."""
    if len(bars) <= room:
        return list(bars)
    at: dict[int, list[_Bar]] = defaultdict(list)
    for bar in bars:
        at[int((span.x(bar.from_ms) - LABEL_WIDTH) * room / (span.width + 1))].append(bar)
    return [
        max(alike, key=lambda bar: bar.to_ms - bar.from_ms)._replace(others=len(alike) - 1) for alike in at.values()
    ]


def _bars(rows: Sequence[Any], span: Span, room: int, begin: str, end: str) -> list[_Bar]:
    """`begin` and `end`: the columns; an end that is not known is that of the picture."""
    ends = [getattr(one, end) for one in rows]
    found = [
        _Bar(getattr(one, begin), span.to_ms if to_ms is None else to_ms, one)
        for one, to_ms in zip(rows, ends, strict=True)
    ]
    return _told_apart(found, span, room)


def _outages(outages: Sequence[Any], span: Span, row: int, room: int) -> Iterator[str]:
    for bar in _bars(outages, span, room, "start_ms", "end_ms"):
        words = f"{bar.of.topic}-{bar.of.partition}: {span.clock(bar.from_ms)}, "
        words += f"{lasting(bar.to_ms - bar.from_ms)}{bar.more}"
        yield span.bar(row, bar.from_ms, bar.to_ms, "outage", words)


def lanes(answers: Answers, span: Span) -> str:
    """Draws the controllers and the brokers that lived, with the outages below."""
    lives, losses = _rows(answers, "broker_lives"), _rows(answers, "failovers")
    brokers = sorted({one.broker for rows in (lives, _rows(answers, "controller_tenures"), losses) for one in rows})
    lost = Counter(one.broker for one in losses)
    shown = sorted(sorted(brokers, key=lambda broker: (-lost[broker], broker))[:LANES])
    away, off = _rows(answers, "zookeeper_outages"), _rows(answers, "cluster_silences")
    rows = ["controller", *(f"broker {broker}" for broker in shown), "without a leader", *["ZooKeeper"] * bool(away)]
    room = max(10, BARS // len(rows))
    marks = [*_seats(answers, span, room)]
    for row, broker in enumerate(shown, start=1):
        of_broker = [one for one in lives if one.broker == broker]
        marks += _lives(of_broker, [one for one in losses if one.broker == broker], span, row, room)
    marks += _outages(_rows(answers, "partition_outages"), span, 1 + len(shown), room)
    for bar in _bars(away, span, room, "from_ms", "to_ms"):
        words = f"ZooKeeper away: {span.clock(bar.from_ms)}, {lasting(bar.to_ms - bar.from_ms)}{bar.more}"
        marks.append(span.bar(2 + len(shown), bar.from_ms, bar.to_ms, "away", words))
    for bar in _bars(off, span, room, "from_ms", "to_ms"):
        words = f"no broker lived: {span.clock(bar.from_ms)}, {lasting(bar.to_ms - bar.from_ms)}{bar.more}"
        marks.append(span.bar(0, bar.from_ms, bar.to_ms, "off", words))
    rest = len(brokers) - len(shown)
    note = f"<p>{rest} more brokers, which went less often, are in report.json.</p>" if rest else ""
    return picture(span, rows, marks, "Controllers and brokers over time") + note


def _seats(answers: Answers, span: Span, room: int) -> Iterator[str]:
    for index, bar in enumerate(_bars(_rows(answers, "controller_tenures"), span, room, "from_ms", "to_ms")):
        one = bar.of
        words = (
            f"broker {one.broker}, epoch {one.controller_epoch}: {span.clock(one.from_ms)} to {span.clock(one.to_ms)}"
        )
        words += f", {one.why_ended or 'it holds the seat'}{bar.more}"
        yield span.bar(0, bar.from_ms, bar.to_ms, f"seat seat{index % 2}", words)
        x = span.x(bar.from_ms) + 3
        if span.x(bar.to_ms) - x > 16:
            yield f'<text class="inside" x="{x}" y="{ROW - 7}">{one.broker}</text>'


def _lives(lives: Sequence[Any], losses: Sequence[Any], span: Span, row: int, room: int) -> Iterator[str]:
    for bar in _bars(lives, span, room // 3, "from_ms", "last_seen_ms"):
        one = bar.of
        words = (
            f"broker {one.broker}: {span.clock(one.from_ms)} to {span.clock(one.last_seen_ms)}, {one.ended}{bar.more}"
        )
        yield span.bar(row, bar.from_ms, bar.to_ms, "life", words)
        if one.ended not in ("running", "expired"):
            yield span.mark(row, bar.to_ms, f"end {one.ended}", f"broker {one.broker} {one.ended}")
    expired = [one for one in losses if one.how == "expired"]  # it lived on, so this is no end of a life
    for bar in _bars(expired, span, room // 3, "detected_ms", "detected_ms"):
        words = f"broker {bar.of.broker} lost its session, {span.clock(bar.from_ms)}{bar.more}"
        yield span.mark(row, bar.from_ms, "end expired", words)


def partitions(answers: Answers, span: Span) -> str:
    """Draws the worst partitions: their in-sync replicas, and the times without a leader."""
    length: dict[tuple[str, int], int] = defaultdict(int)
    for one in _rows(answers, "partition_outages"):
        felt_ms = one.leader_last_seen_ms if one.leader_last_seen_ms is not None else one.start_lo_ms
        length[one.topic, one.partition] += (span.to_ms if one.end_ms is None else one.end_ms) - felt_ms
    worst = sorted(length, key=lambda key: (-length[key], key))[:WORST]
    full: dict[tuple[str, int], int] = defaultdict(int)
    for one in _rows(answers, "isr_timeline"):
        key = (one.topic, one.partition)
        full[key] = max(full[key], len(one.isr))
    states, outages = _by_partition(answers, "isr_timeline"), _by_partition(answers, "partition_outages")
    room = max(10, BARS // (3 * len(worst))) if worst else 0
    marks: list[str] = []
    for row, key in enumerate(worst):
        for bar in _bars(states[key], span, room, "from_ms", "to_ms"):
            one = bar.of
            kind = "gone" if one.leader == -1 else "whole" if len(one.isr) == full[key] else "shrunk"
            words = f"{one.topic}-{one.partition} from {span.clock(one.from_ms)}: leader {one.leader}, "
            words += f"epoch {one.leader_epoch}, in sync {','.join(map(str, one.isr))}, version {one.version}{bar.more}"
            marks.append(span.bar(row, bar.from_ms, bar.to_ms, kind, words))
        for bar in _bars(outages[key], span, room, "start_ms", "end_ms"):
            marks += _without_leader(bar, span, row)
    drawn = picture(span, [f"{topic}-{number}" for topic, number in worst], marks, "The worst partitions over time")
    rest = f"<p>{len(length) - WORST} more had outages: see the tables.</p>" if len(length) > WORST else ""
    return drawn + rest


def _by_partition(answers: Answers, table: str) -> dict[tuple[str, int], list[Any]]:
    found: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for one in _rows(answers, table):
        found[one.topic, one.partition].append(one)
    return found


def _without_leader(bar: _Bar, span: Span, row: int) -> Iterator[str]:
    one = bar.of
    if one.leader_last_seen_ms is not None:
        words = f"its leader, broker {one.first_broker}, was last heard {span.clock(one.leader_last_seen_ms)}"
        yield span.bar(row, one.leader_last_seen_ms, bar.from_ms, "felt", words)
    words = f"no leader from {span.clock(bar.from_ms)} ({one.evidence}) for {lasting(bar.to_ms - bar.from_ms)}"
    yield span.bar(row, bar.from_ms, bar.to_ms, "outage", f"{words}, {one.cause}{bar.more}")


def heat(answers: Answers, span: Span) -> str:
    """Partitions by time: the share of each cell without a leader. A leader's silence before it was missed is none."""
    cell_ms = max(1, -(-(span.to_ms - span.from_ms) // HEAT_COLUMNS))
    lost: dict[tuple[str, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for one in _rows(answers, "partition_outages"):
        from_ms = max(span.from_ms, one.start_ms)
        to_ms = span.to_ms if one.end_ms is None else one.end_ms
        for cell in range((from_ms - span.from_ms) // cell_ms, (to_ms - span.from_ms) // cell_ms + 1):
            start_ms = span.from_ms + cell * cell_ms
            overlap_ms = min(to_ms, start_ms + cell_ms) - max(from_ms, start_ms)
            lost[one.topic, one.partition][cell] += max(overlap_ms, 1)
    worst = sorted(lost, key=lambda name: (-sum(lost[name].values()), name))[:HEAT_ROWS]
    names = sorted(worst)
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
    note = f"<p>A cell is {lasting(cell_ms)}; a row is a partition that had an outage. Darker: a larger share of it."
    note += " It counts from when the leader was missed: silence before that is among the worst partitions."
    note += f" {len(lost) - len(names)} more partitions had less of it.</p>" if len(lost) > len(names) else "</p>"
    return framed(f"<svg {box}>{span.axis(height)}{''.join(topics)}{image}</svg>") + note


def waterfalls(answers: Answers) -> str:
    """Returns each failover from the broker's last word on, on one scale."""
    found: list[Any] = [one for one in _rows(answers, "failovers") if one.last_seen_ms is not None]
    found = sorted(found, key=lambda one: one.detected_ms)[-WORST:]
    span = span_of(answers)
    if not found or span is None:
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
        marks.append(label(row, f"{span.brief(one.detected_ms)} broker {one.broker}{seat}"))
    box = f'viewBox="0 0 {WIDTH} {len(found) * ROW}" role="img" aria-label="Failovers by phase"'
    keys = "".join(f'<span><i class="{kind}"></i>{escape(words)}</span>' for kind, _, _, words in _PHASES)
    return f'<p class="legend">{keys}<span>♔ it was the controller</span></p>' + framed(
        f"<svg {box}>{''.join(marks)}</svg>"
    )


def takeovers(answers: Answers) -> str:
    """Draws the phases of each new controller's takeover, on one scale."""
    found: dict[tuple[str, int, int], list[Any]] = {}
    for one in _rows(answers, "controller_phases"):
        found.setdefault((one.cluster, one.controller_epoch, one.broker), []).append(one)
    shown, span = list(found.items())[-WORST:], span_of(answers)
    if not shown or span is None:
        return "<p>No line tells of a takeover.</p>"
    ends = {key: max(one.from_ms if one.to_ms is None else one.to_ms for one in phases) for key, phases in shown}
    longest = max(1, *(ends[key] - phases[0].from_ms for key, phases in shown))
    width = WIDTH - LABEL_WIDTH - 320  # leaves room for the words behind the longest bar
    names = list(dict.fromkeys(one.phase for _, phases in shown for one in phases))
    kinds = {name: f"ph{number % PHASE_COLOURS}" for number, name in enumerate(names)}
    marks = []
    for row, (key, phases) in enumerate(shown):
        begun_ms = phases[0].from_ms
        for one in phases:
            took_ms = (one.from_ms if one.to_ms is None else one.to_ms) - one.from_ms
            x = LABEL_WIDTH + (one.from_ms - begun_ms) / longest * width
            place = f'x="{x:.1f}" y="{row * ROW + 4}" width="{max(1.0, took_ms / longest * width):.1f}"'
            words = title(f"{one.phase}: {lasting(took_ms)}")
            marks.append(f'<rect class="{kinds[one.phase]}" {place} height="{ROW - 8}">{words}</rect>')
        slowest = max(phases, key=lambda one: one.took_ms or 0.0)
        x = LABEL_WIDTH + (ends[key] - begun_ms) / longest * width + 8
        words = f"{lasting(ends[key] - begun_ms)}, most of it: {escape(slowest.phase)}"
        marks.append(f'<text class="note" x="{x:.1f}" y="{row * ROW + 15}">{words}</text>')
        marks.append(label(row, f"{span.brief(begun_ms)} broker {key[2]} ({key[1]})"))
    box = f'viewBox="0 0 {WIDTH} {len(shown) * ROW}" role="img" aria-label="Takeovers by phase"'
    return legend((kinds[name], name) for name in names) + framed(f"<svg {box}>{''.join(marks)}</svg>")


def _rows(answers: Answers, table: str) -> Sequence[Any]:
    return answers[table]
