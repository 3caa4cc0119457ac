"""The report as one HTML file: a person's questions, in the order of asking. Pure: from the answers to text.

The file refers to no other place: styles, pictures and the little script are inside. `quote` gives the words of a line
and its place, for the lines that prove a finding. The last part shows the basis of the report: where the lines of each
file went, which lines were not understood, and how far the clocks were off.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any, Final, NamedTuple

from sparkjobs.clocks.skew import zone_hint
from sparkjobs.report import pictures
from sparkjobs.report.findings import Finding, findings_for
from sparkjobs.report.markup import (
    ROWS_SHOWN,
    Clock,
    clock,
    clock_for,
    lasting,
    legend,
    row_of,
    span_of,
    table_of,
    worst,
)
from sparkjobs.report.state_machines import machines
from sparkjobs.report.verdict import is_blind, summary_for, verdict_for
from sparkjobs.rules.coverage import ENDS
from sparkjobs.rules.rules import Answers
from sparkjobs.tables.silver import BronzeFile, SilverCount, SilverQuarantine, SilverSkew

#: lines in quarantine that a page quotes
_ODD_SHOWN = 50


class Input(NamedTuple):
    """Where the lines went."""

    counts: Sequence[SilverCount] = ()
    quarantine: Sequence[SilverQuarantine] = ()
    skew: Sequence[SilverSkew] = ()
    files: Sequence[BronzeFile] = ()


def accounting(read: Input) -> str:
    """Three tables; files that could not be read first."""
    odd = [row_of(one.reason, str(one.line_no), one.line[:200]) for one in read.quarantine[:_ODD_SHOWN]]
    return (
        _files(read)
        + (table_of(("not understood", "line", ""), odd, len(read.quarantine)) if odd else "")
        + (_clocks(read.skew) if read.skew else "")
    )


def _files(read: Input) -> str:
    troubles = {file.file_id: file.trouble or file.status for file in read.files}

    def is_whole(count: SilverCount) -> bool:
        return troubles.get(count.file_id, "read") == "read"

    rows = [
        row_of(
            one.path,
            *((n, str(n)) for n in (one.lines, one.events, one.continuations, one.duplicates, one.quarantined)),
            troubles.get(one.file_id, "read"),
        )
        for one in worst(sorted(read.counts, key=is_whole), lambda one: (not is_whole(one), one.quarantined))
    ]
    heads = ("file", "lines", "events", "continuations", "duplicates", "not understood", "as it was")
    return table_of(heads, rows, len(read.counts))


def _clocks(skew: Sequence[SilverSkew]) -> str:
    rows = [
        row_of(
            f"broker {one.broker}",
            (one.offset_ms, f"{one.offset_ms} ms"),
            "-" if one.err_ms is None else f"± {one.err_ms} ms",
            one.method,
            zone_hint(one) or "",
        )
        for one in worst(skew, lambda one: abs(one.offset_ms))
    ]
    return table_of(("clock of", "was ahead by", "known to", "from", ""), rows, len(skew))


class Quote(NamedTuple):
    """A line of a log, and where it stands."""

    path: str
    line_no: int
    text: str


Quoting = Callable[[str, int], Quote | None]


def page_for(answers: Answers, quote: Quoting, read: Input, made_by: str, *, is_known: bool = False) -> str:
    """Returns the whole page. `is_known`: a record tells how partitions stood, so that logs which do not are no
    verdict."""
    span, at, findings = span_of(answers), clock_for(answers), findings_for(answers)
    clusters = ", ".join(sorted({row.cluster for rows in answers.values() for row in rows}))  # type: ignore[attr-defined]
    parts = [] if is_known and is_blind(answers) else [_verdict(answers)]
    if span is not None:
        parts += [
            _section("course", "What happened when", pictures.lanes(answers, span), _LANES),
            _section("findings", "Findings, worst first", _grave(findings, quote, at)),
            _section("timeline", "Timeline: all that happened, in its order", _timeline(findings, quote, at)),
            _section("partitions", "The worst partitions", pictures.partitions(answers, span), _PARTITIONS),
            _section("heat", "Where and when nobody led", pictures.heat(answers, span)),
            _section("failovers", "Failovers, phase by phase", pictures.waterfalls(answers)),
            _section("outages", "Outages", _outages(answers, at)),
            _section(
                "controllers", "Controllers", _controllers(answers, at) + _TAKEOVERS + pictures.takeovers(answers)
            ),
            _section("machines", "The two state machines", _MACHINES + machines(answers)),
            _section("churn", "Leader changes and flapping", _churn(answers, at)),
            _section("latency", "How long requests took", _latency(answers)),
            _section("slo", "Availability and error budget", _slo(answers)),
        ]
    parts.append(_section("input", "What this rests on", _coverage(answers) + accounting(read)))
    period = "" if span is None else f"{clock(span.from_ms, with_day=True)} to {clock(span.to_ms, with_day=True)} UTC"
    here = files("sparkjobs.report")
    style, script = (here.joinpath(name).read_text(encoding="utf-8") for name in ("style.css", "page.js"))
    digest = b64encode(sha256(script.encode()).digest()).decode()
    links = " ".join(f'<a href="#{name}">{words}</a>' for name, words in _LINKS)
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY} script-src \'sha256-{digest}\'">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>What happened: {escape(clusters)}</title><style>{style}</style></head><body>"
        f'<h1>What happened to {escape(clusters) or "nothing"}</h1><p class="soft">{period}. {escape(made_by)}</p>'
        f"<nav>{links}</nav>{''.join(parts)}<script>{script}</script></body></html>"
    )
    return page.translate(_SHOWN)


#: the page may use its own styles and its own script, and load nothing from outside
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none';"
#: a log may hold characters that steer a terminal, or turn the direction of what follows
_STEERING: Final = (*range(0x20), 0x7F, *range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SHOWN: Final = {code: repr(chr(code))[1:-1] for code in _STEERING if chr(code) not in "\t\n\r"}
_TAKEOVERS: Final = (
    "<p>What each new controller, with its epoch in brackets, did before it was one. A block is a phase:</p>"
)
_MACHINES: Final = (
    "<p>What the controllers held for true. On each arrow: how often a partition, or a replica, made that move; a move "
    "to the same state is a state that was written, or told, anew.</p>"
)
_LINKS: Final = (
    ("course", "when"),
    ("findings", "findings"),
    ("timeline", "timeline"),
    ("partitions", "partitions"),
    ("failovers", "failovers"),
    ("controllers", "controllers"),
    ("machines", "state machines"),
    ("slo", "availability"),
    ("input", "what this rests on"),
)
_LANES: Final = (
    ("seat0", "controller, by number"),
    ("life", "broker alive"),
    ("end crashed", "it died, or was lost"),
    ("end stopped", "it was stopped"),
    ("end expired", "it lost its session"),
    ("away", "ZooKeeper away"),
    ("off", "nothing was on"),
    ("outage", "no leader"),
)
_PARTITIONS: Final = (
    ("whole", "all in sync"),
    ("shrunk", "fewer in sync"),
    ("outage", "no leader"),
    ("felt", "its leader was silent and not yet missed"),
)


def _section(name: str, heading: str, body: str, keys: Iterable[tuple[str, str]] = ()) -> str:
    return f'<section id="{name}"><h2>{escape(heading)}</h2>{legend(keys)}{body}</section>'


def _verdict(answers: Answers) -> str:
    verdict = verdict_for(answers)
    numbers = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in verdict.numbers.items())
    asked = "".join(f"<dt>{escape(question)}</dt><dd>{escape(said)}</dd>" for question, said in summary_for(answers))
    return (
        f'<div class="verdict {verdict.mood}"><strong>{escape(verdict.sentence)}</strong>'
        f'<dl class="asked">{asked}</dl><dl class="numbers">{numbers}</dl>{_missing(answers)}</div>'
    )


#: up to this weight a finding is one to look at; the rest explains the others
_GRAVE: Final = 2


def _grave(findings: Sequence[Finding], quote: Quoting, at: Clock) -> str:
    found = [one for one in findings if one.weight <= _GRAVE]
    return _findings(found, quote, at) if found else "<p>Nothing to look into: the timeline has all that happened.</p>"


def _timeline(findings: Sequence[Finding], quote: Quoting, at: Clock) -> str:
    return _findings(sorted(findings, key=lambda one: (one.at_ms, one.weight, one.words)), quote, at)


def _findings(findings: Sequence[Finding], quote: Quoting, at: Clock) -> str:
    rows = []
    for one in findings[:ROWS_SHOWN]:
        said = quote(one.file_id, one.line_no) if one.file_id else None
        proof = ""
        if said is not None:
            place = f"{escape(said.path)}, line {said.line_no}"
            proof = f"<details><summary>{place}</summary><code>{escape(said.text[:1000], quote=False)}</code></details>"
        rows.append(
            f'<tr class="w{one.weight}"><td class="n" data-v="{one.at_ms}">{at(one.at_ms)}</td>'
            f'<td data-v="{one.weight}"><span class="tag">{escape(one.kind)}</span></td>'
            f"<td>{escape(one.words)}{proof}</td></tr>"
        )
    return table_of(("when", "what", ""), rows, len(findings))


def _outages(answers: Answers, at: Clock) -> str:
    found: list[Any] = sorted(_rows(answers, "partition_outages"), key=lambda o: (not o.open, -_length(o), o.start_ms))
    rows = [
        row_of(
            f"{one.topic}-{one.partition}",
            (one.start_ms, at(one.start_ms)),
            (one.end_ms or 0, at(one.end_ms) if one.end_ms is not None else "still open"),
            (_length(one), lasting(_length(one))),
            (one.start_hi_ms - one.start_lo_ms, _bounds(one)),
            f"{one.cause.replace('_', ' ')}{'' if one.first_broker is None else f', broker {one.first_broker}'}",
            "-" if one.leader is None else f"broker {one.leader}, epoch {one.leader_epoch}",
            "yes" if one.unclean else "",
        )
        for one in found[:ROWS_SHOWN]
    ]
    heads = ("partition", "from", "to", "length", "start known", "cause", "then led by", "unclean")
    return table_of(heads, rows, len(found))


def _length(outage: Any) -> int:
    return 0 if outage.end_ms is None else int(outage.end_ms - outage.start_ms)


def _bounds(outage: Any) -> str:
    if outage.evidence == "exact":
        return "exactly"
    return f"within {lasting(outage.start_hi_ms - outage.start_lo_ms)}"


def _controllers(answers: Answers, at: Clock) -> str:
    tenures = _rows(answers, "controller_tenures")
    rows = [
        row_of(
            (one.controller_epoch, str(one.controller_epoch)),
            f"broker {one.broker}",
            (one.from_ms, at(one.from_ms)),
            (one.to_ms or 0, at(one.to_ms) if one.to_ms is not None else "now"),
            one.why_ended or "",
            (one.gap_before_ms or 0, lasting(one.gap_before_ms)),
            (0, lasting(None if one.ready_ms is None else one.ready_ms - one.from_ms)),
            one.evidence,
        )
        for one in worst(tenures, lambda one: one.gap_before_ms or 0)
    ]
    heads = ("epoch", "who", "from", "to", "how it ended", "nobody before it for", "ready after", "start known")
    return table_of(heads, rows, len(tenures))


def _churn(answers: Answers, at: Clock) -> str:
    churned = _rows(answers, "leader_churn")
    churn = [
        row_of(
            clock(o.hour_ms, with_day=True)[:16],
            o.topic,
            (o.changes, str(o.changes)),
            (o.partitions, str(o.partitions)),
            f"{o.topic}-{o.most_partition} ({o.most_changes})",
        )
        for o in worst(churned, lambda one: one.changes)
    ]
    flaps = sorted(_rows(answers, "flapping"), key=lambda one: -one.most_in_window)
    restless = [
        row_of(
            o.what,
            f"broker {o.broker}" if o.topic is None else f"{o.topic}-{o.partition}",
            (o.from_ms, at(o.from_ms)),
            (o.to_ms, at(o.to_ms)),
            (o.transitions, str(o.transitions)),
            (o.most_in_window, str(o.most_in_window)),
        )
        for o in flaps[:ROWS_SHOWN]
    ]
    return table_of(("hour", "topic", "changes", "partitions", "most"), churn, len(churned)) + table_of(
        ("what", "of", "from", "to", "changes", "most in ten minutes"), restless, len(flaps)
    )


def _latency(answers: Answers) -> str:
    requests = _rows(answers, "rpc_latency")
    rows = [
        row_of(
            clock(o.hour_ms, with_day=True)[:16],
            f"broker {o.broker}",
            o.api,
            "its own work" if o.side == "broker" else "to the acknowledgement",
            (o.requests, str(o.requests)),
            *((value, lasting(value)) for value in (o.p50_ms, o.p95_ms, o.p99_ms, o.max_ms)),
        )
        for o in worst(requests, lambda one: one.max_ms)
    ]
    return table_of(
        ("hour", "broker", "request", "measured", "requests", "half", "95 %", "99 %", "most"), rows, len(requests)
    )


def _slo(answers: Answers) -> str:
    days = _rows(answers, "slo_daily")
    rows = [
        row_of(
            o.dt,
            o.topic or "all",
            (o.partitions, str(o.partitions)),
            (o.availability, f"{o.availability:.4f} %"),
            (o.unavailable_ms, lasting(o.unavailable_ms)),
            (o.unavailable_hi_ms, lasting(o.unavailable_hi_ms)),
            (o.budget_used, f"{100 * o.budget_used:.0f} %"),
            "yes" if o.is_met else "no",
        )
        for o in worst(days, lambda one: one.budget_used)
    ]
    heads = ("day", "topic", "partitions", "available", "offline", "as clients felt it, at most", "budget used", "met")
    return table_of(heads, rows, len(days))


#: questions that the verdict and the answers beside it rest on
_OF_FIRST_SCREEN: Final = ("start of an outage", ENDS, "who was controller", "crash or clean stop", "all brokers")


def _missing(answers: Answers) -> str:
    """Returns the questions of the first screen that these logs cannot answer, and why. They stand beside the verdict
    that rests on them."""
    known = [one for one in _rows(answers, "coverage") if one.grade in ("partial", "none")]
    told = [one for question in _OF_FIRST_SCREEN for one in known if one.question == question]
    if not told:
        return ""
    items = "".join(
        f'<li><b>{escape(one.question)}</b>: <span class="{one.grade}">{_GRADES[one.grade]}</span>, '
        f"{escape(one.why)}</li>"
        for one in told[:ROWS_SHOWN]
    )
    return f'<p class="missing">What these logs do not say for certain:</p><ul class="missing">{items}</ul>'


_GRADES: Final = {"partial": "in part", "none": "unknown"}


def _coverage(answers: Answers) -> str:
    known = _rows(answers, "coverage")
    rows = [
        f'<tr><td>{escape(o.question)}</td><td class="{o.grade}">{o.grade}</td><td>{escape(o.why)}</td></tr>'
        for o in worst(known, lambda one: one.grade != "exact")
    ]
    return table_of(("question", "answer", "because"), rows, len(known))


def _rows(answers: Answers, table: str) -> Sequence[Any]:
    return answers[table]
