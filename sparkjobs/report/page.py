"""The report as one HTML file: what a person asks, in the order they ask it. Pure: from the answers to text.

Nothing in it refers to another place: styles, pictures and the little script are inside. `quote` gives the words of a
line and where it stands, for the lines that prove something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final, NamedTuple

from sparkjobs.answers.local import Answers
from sparkjobs.report import pictures
from sparkjobs.report.drawing import clock, lasting
from sparkjobs.report.findings import Finding, findings_for, verdict_for
from sparkjobs.schemas import SilverCount, SilverQuarantine, SilverSkew

#: rows of a table that are shown; the rest is in the JSON and Parquet beside the page
ROWS_SHOWN: Final = 300


class Quote(NamedTuple):
    """A line of a log, and where it stands."""

    path: str
    line_no: int
    text: str


Quoting = Callable[[str, int], Quote | None]


class Input(NamedTuple):
    """Where the lines went."""

    counts: Sequence[SilverCount] = ()
    quarantine: Sequence[SilverQuarantine] = ()
    skew: Sequence[SilverSkew] = ()


def page_for(answers: Answers, quote: Quoting, read: Input, made_by: str) -> str:
    """The whole page."""
    span = pictures.span_of(answers)
    clusters = ", ".join(sorted({row.cluster for rows in answers.values() for row in rows}))  # type: ignore[attr-defined]
    parts = [_verdict(answers)]
    if span is not None:
        parts += [
            _section("course", "What happened when", pictures.lanes(answers, span), _LANES),
            _section("findings", "Findings", _findings(findings_for(answers), quote)),
            _section("partitions", "The worst partitions", pictures.partitions(answers, span), _PARTITIONS),
            _section("heat", "Where and when nobody led", pictures.heat(answers, span)),
            _section("failovers", "Failovers, phase by phase", pictures.waterfalls(answers)),
            _section("outages", "Outages", _outages(answers)),
            _section("controllers", "Controllers", _controllers(answers)),
            _section("churn", "Leader changes and flapping", _churn(answers)),
            _section("latency", "How long brokers worked on requests", _latency(answers)),
            _section("slo", "Availability and error budget", _slo(answers)),
        ]
    parts.append(_section("input", "What this rests on", _coverage(answers) + _accounting(read)))
    period = "" if span is None else f"{clock(span.from_ms, with_day=True)} to {clock(span.to_ms, with_day=True)} UTC"
    here = files("sparkjobs.report")
    style, script = (here.joinpath(name).read_text(encoding="utf-8") for name in ("style.css", "page.js"))
    links = "".join(f'<a href="#{name}">{words}</a>' for name, words in _LINKS)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>What happened: {escape(clusters)}</title><style>{style}</style></head><body>"
        f'<h1>What happened to {escape(clusters) or "nothing"}</h1><p class="soft">{period}. {escape(made_by)}</p>'
        f"<nav>{links}</nav>{''.join(parts)}<script>{script}</script></body></html>"
    )


_LINKS: Final = (
    ("course", "when"),
    ("findings", "findings"),
    ("partitions", "partitions"),
    ("failovers", "failovers"),
    ("controllers", "controllers"),
    ("slo", "availability"),
    ("input", "what this rests on"),
)
_LANES: Final = (
    ("seat0", "controller"),
    ("life", "broker alive"),
    ("crashed", "it died"),
    ("expired", "it lost its session"),
    ("outage", "no leader"),
)
_PARTITIONS: Final = (
    ("whole", "all in sync"),
    ("shrunk", "fewer in sync"),
    ("outage", "no leader"),
    ("felt", "its leader was silent and not yet missed"),
)


def _section(name: str, heading: str, body: str, legend: Iterable[tuple[str, str]] = ()) -> str:
    keys = "".join(
        f'<span><svg class="key" viewBox="0 0 12 12" style="width:12px;display:inline;border:0">'
        f'<rect class="{kind}" width="12" height="12"/></svg> {escape(words)}</span>'
        for kind, words in legend
    )
    keys = f'<p class="legend">{keys}</p>' if keys else ""
    return f'<section id="{name}"><h2>{escape(heading)}</h2>{keys}{body}</section>'


def _verdict(answers: Answers) -> str:
    verdict = verdict_for(answers)
    numbers = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in verdict.numbers.items())
    return f'<div class="verdict {verdict.mood}"><strong>{escape(verdict.sentence)}</strong><dl>{numbers}</dl></div>'


def _findings(findings: Sequence[Finding], quote: Quoting) -> str:
    rows = []
    for one in findings[:ROWS_SHOWN]:
        said = quote(one.file_id, one.line_no) if one.file_id else None
        proof = ""
        if said is not None:
            place = f"{escape(said.path)}, line {said.line_no}"
            proof = f"<details><summary>{place}</summary><code>{escape(said.text[:1000])}</code></details>"
        rows.append(
            f'<tr class="w{one.weight}"><td class="n" data-v="{one.at_ms}">{clock(one.at_ms)}</td>'
            f'<td data-v="{one.weight}"><span class="tag">{escape(one.kind)}</span></td>'
            f"<td>{escape(one.words)}{proof}</td></tr>"
        )
    return _table(("when", "what", ""), rows, len(findings))


def _outages(answers: Answers) -> str:
    found: list[Any] = sorted(_rows(answers, "partition_outages"), key=lambda o: (not o.open, -_length(o), o.start_ms))
    rows = [
        _row(
            f"{one.topic}-{one.partition}",
            (one.start_ms, clock(one.start_ms)),
            (one.end_ms or 0, clock(one.end_ms) if one.end_ms is not None else "still open"),
            (_length(one), lasting(_length(one))),
            (one.start_hi_ms - one.start_lo_ms, _bounds(one)),
            f"{one.cause.replace('_', ' ')}{'' if one.first_broker is None else f', broker {one.first_broker}'}",
            "-" if one.leader is None else f"broker {one.leader}, epoch {one.leader_epoch}",
            "yes" if one.unclean else "",
        )
        for one in found[:ROWS_SHOWN]
    ]
    heads = ("partition", "from", "to", "length", "start known", "cause", "then led by", "unclean")
    return _table(heads, rows, len(found))


def _length(outage: Any) -> int:
    return 0 if outage.end_ms is None else int(outage.end_ms - outage.start_ms)


def _bounds(outage: Any) -> str:
    if outage.evidence == "exact":
        return "exactly"
    return f"within {lasting(outage.start_hi_ms - outage.start_lo_ms)}"


def _controllers(answers: Answers) -> str:
    rows = [
        _row(
            (one.controller_epoch, str(one.controller_epoch)),
            f"broker {one.broker}",
            (one.from_ms, clock(one.from_ms)),
            (one.to_ms or 0, clock(one.to_ms) if one.to_ms is not None else "now"),
            one.why_ended or "",
            (one.gap_before_ms or 0, lasting(one.gap_before_ms)),
            (0, lasting(None if one.ready_ms is None else one.ready_ms - one.from_ms)),
            one.evidence,
        )
        for one in _rows(answers, "controller_tenures")
    ]
    heads = ("epoch", "who", "from", "to", "how it ended", "nobody before it for", "ready after", "start known")
    return _table(heads, rows, len(rows))


def _churn(answers: Answers) -> str:
    churn = [
        _row(
            (o.hour_ms, clock(o.hour_ms, with_day=True)[:16]),
            o.topic,
            (o.changes, str(o.changes)),
            (o.partitions, str(o.partitions)),
            f"{o.topic}-{o.most_partition} ({o.most_changes})",
        )
        for o in _rows(answers, "leader_churn")
    ]
    flaps = sorted(_rows(answers, "flapping"), key=lambda one: -one.most_in_window)
    restless = [
        _row(
            o.what,
            f"broker {o.broker}" if o.topic is None else f"{o.topic}-{o.partition}",
            (o.from_ms, clock(o.from_ms)),
            (o.to_ms, clock(o.to_ms)),
            (o.transitions, str(o.transitions)),
            (o.most_in_window, str(o.most_in_window)),
        )
        for o in flaps[:ROWS_SHOWN]
    ]
    return _table(("hour", "topic", "changes", "partitions", "most"), churn, len(churn)) + _table(
        ("what", "of", "from", "to", "changes", "most in ten minutes"), restless, len(flaps)
    )


def _latency(answers: Answers) -> str:
    rows = [
        _row(
            (o.hour_ms, clock(o.hour_ms, with_day=True)[:16]),
            f"broker {o.broker}",
            o.api,
            (o.requests, str(o.requests)),
            *((value, lasting(value)) for value in (o.p50_ms, o.p95_ms, o.p99_ms, o.max_ms)),
        )
        for o in _rows(answers, "rpc_latency")
    ]
    return _table(("hour", "who", "request", "requests", "half", "95 %", "99 %", "most"), rows, len(rows))


def _slo(answers: Answers) -> str:
    rows = [
        _row(
            o.dt,
            o.topic or "all",
            (o.partitions, str(o.partitions)),
            (o.availability, f"{o.availability:.4f} %"),
            (o.unavailable_ms, lasting(o.unavailable_ms)),
            (o.unavailable_hi_ms, lasting(o.unavailable_hi_ms)),
            (o.budget_used, f"{100 * o.budget_used:.0f} %"),
            "yes" if o.is_met else "no",
        )
        for o in _rows(answers, "slo_daily")
    ]
    heads = ("day", "topic", "partitions", "available", "offline", "as clients felt it, at most", "budget used", "met")
    return _table(heads, rows, len(rows))


def _coverage(answers: Answers) -> str:
    rows = [
        f'<tr><td>{escape(o.question)}</td><td class="{o.grade}">{o.grade}</td><td>{escape(o.why)}</td></tr>'
        for o in _rows(answers, "coverage")
    ]
    return _table(("question", "answer", "because"), rows, len(rows))


def _accounting(read: Input) -> str:
    rows = [
        _row(
            one.path,
            *((n, str(n)) for n in (one.lines, one.events, one.continuations, one.duplicates, one.quarantined)),
        )
        for one in read.counts[:ROWS_SHOWN]
    ]
    heads = ("file", "lines", "events", "continuations", "duplicates", "not understood")
    odd = [_row(one.reason, str(one.line_no), one.line[:200]) for one in read.quarantine[:50]]
    clocks = [
        _row(
            f"broker {one.broker}",
            (one.offset_ms, f"{one.offset_ms} ms"),
            "-" if one.err_ms is None else f"± {one.err_ms} ms",
            one.method,
        )
        for one in read.skew[:ROWS_SHOWN]
    ]
    return (
        _table(heads, rows, len(read.counts))
        + (_table(("not understood", "line", ""), odd, len(read.quarantine)) if odd else "")
        + (_table(("clock of", "was ahead by", "known to", "from"), clocks, len(read.skew)) if clocks else "")
    )


def _row(*cells: str | tuple[float, str]) -> str:
    shown = (
        f"<td>{escape(cell)}</td>"
        if isinstance(cell, str)
        else f'<td class="n" data-v="{cell[0]}">{escape(cell[1])}</td>'
        for cell in cells
    )
    return f"<tr>{''.join(shown)}</tr>"


def _table(heads: Sequence[str], rows: Sequence[str], count: int) -> str:
    if not rows:
        return '<p class="soft">None.</p>'
    more = (
        f'<p class="soft">{count - len(rows)} more are in the files beside this page.</p>' if count > len(rows) else ""
    )
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>{more}'


def _rows(answers: Answers, table: str) -> Sequence[Any]:
    return answers[table]
