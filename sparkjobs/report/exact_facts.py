"""The facts that are certain, for people: a part of the report's page, or the page where there are no logs. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final

import msgspec

from sparkjobs.report.markup import ROWS_SHOWN, Span, clock, counted, lasting, named, picture, row_of, table_of, worst
from sparkjobs.report.page import Quoting
from sparkjobs.report.redact import Redactor, redacted
from sparkjobs.report.verdict import LISTED, Verdict
from sparkjobs.tables.silver import Row

Records = Mapping[str, Sequence[Any]]
_PATH: Final = re.compile(r"[^\s,;]*/[^\s,;]*")
_MODES: Final = {"zookeeper": "ZooKeeper's transactions", "kraft": "KRaft's metadata log"}
_OPEN: Final = "where the record ends"
#: rows of a picture, and marks in each
_LANES: Final = 40
_MARKS: Final = 400


def knows(records: Records) -> bool:
    """Returns whether the record tells how partitions stood. Then the verdict is the record's."""
    return bool(records.get("record_partition_states"))


def sentence_for(records: Records) -> str:
    """Returns the verdict in one sentence."""
    outages, elections = records["record_outages"], records["record_elections"]
    if not knows(records):
        said = [one.said for one in records["record_sources"] if one.kind == "trouble"]
        return f"Nothing is known for certain: {'; '.join(said) or 'the records name no partition'}."
    still = [one for one in outages if one.to_ms is None]
    unclean = [one for one in elections if one.unclean]
    hit = len({(one.cluster, one.mode, one.topic, one.partition) for one in outages})
    if still:
        sentence = f"Not over: {counted(len(still), 'partition')} without a leader {_OPEN}."
    elif outages:
        sentence = f"Over. {counted(hit, 'partition')} without a leader at some time, none {_OPEN}."
    else:
        sentence = "No partition was ever without a leader."
    known = sum(one.how == "last known leader" for one in unclean)
    if unclean:
        sentence += f" {counted(len(unclean), 'unclean election')}"
        sentence += f", {known} of them of the last known leader." if known else "."
        sentence += f" {_lost(records)}"
    return " ".join([sentence, *(_moved(one) for one in records["record_migrations"])])


#: how far a migration is, in words
_STATES: Final = {
    "waiting for brokers": "Migration to KRaft: its controller waits for brokers.",
    "import": "Migration to KRaft: its controller has taken ZooKeeper's seat, and the import is not over.",
    "kraft": "Migrated from ZooKeeper to KRaft.",
    "rolled back": "The migration to KRaft was rolled back.",
}


def _moved(migration: Any) -> str:
    """Returns the state of a migration in a sentence, and whether both records agree."""
    words = _STATES.get(migration.state, f"Migration to KRaft: {migration.state}.")
    if not migration.compared:
        return f"{words} {migration.said}."
    if not migration.differences:
        return f"{words} ZooKeeper's copy and KRaft's log do not differ."
    return f"{words} ZooKeeper's copy and KRaft's log differ in {counted(migration.differences, 'value')}."


def _lost(records: Records) -> str:
    """Returns the records that unclean elections cost, as far as lines of logs tell."""
    losses = records["record_losses"]
    exact = [one for one in losses if one.extent == "exact"]
    open_ended = [one for one in losses if one.extent in ("unknown", "unbounded")]
    said = []
    if exact:
        count = sum(one.to_offset - one.from_offset for one in exact)
        partitions = len({(one.cluster, one.topic, one.partition) for one in exact})
        said.append(f"{counted(count, 'record')} of {counted(partitions, 'partition')} lost: offsets below.")
    if open_ended:
        silent = {one.leader if one.extent == "unknown" else one.last_leader for one in open_ended} - {None}
        whose = named("broker", sorted(silent))
        said.append(f"What {len(open_ended)} of them lost is not known: the state-change.log of {whose} would tell.")
    return " ".join(said) or "They lost no acknowledged record."


def summary_of(records: Records, at: Any) -> list[tuple[str, str]]:
    """Returns the usual questions after an outage, answered by the record."""
    outages, tenures = records["record_outages"], records["record_tenures"]
    still = [f"{one.topic}-{one.partition}" for one in outages if one.to_ms is None]
    ended = max((one.to_ms for one in outages if one.to_ms is not None), default=None)
    if still:
        over = f"No: without a leader {_OPEN}: {_listed(still)}"
    else:
        over = "Nothing to get over" if ended is None else f"Yes: the last outage ended {at(ended)}"
    length: dict[str, int] = {}
    for one in outages:
        name = f"{one.topic}-{one.partition}"
        length[name] = max(length.get(name, 0), 0 if one.to_ms is None else one.to_ms - one.from_ms)
    longest = sorted(length, key=lambda name: (-length[name], name))
    which = f"{len(length)}; longest without one {_listed(f'{one} ({lasting(length[one])})' for one in longest)}"
    first = min(outages, key=lambda one: (one.from_ms, one.topic, one.partition), default=None)
    unclean = any(one.unclean for one in records["record_elections"])
    gone = min(
        (one for one in records["record_broker_lives"] if one.to_ms is not None and one.ended != "handed over"),
        key=lambda one: (one.to_ms, one.position), default=None,
    )  # fmt: skip
    holding = next((one for one in reversed(tenures) if one.to_ms is None), None)
    moved = [("Is the move to KRaft done?", _moved(one)) for one in records["record_migrations"]]
    return [
        ("Is it over?", over),
        ("Which partitions?", which if length else "None"),
        ("Since when?", "-" if first is None else f"{at(first.from_ms)} ({first.topic}-{first.partition})"),
        ("Was data lost?", _lost(records) if unclean else "No: each leader had been in sync"),
        (
            "Who was controller?",
            f"{counted(len(tenures), 'term')}; "
            + ("nobody in the end" if holding is None else f"in the end {holding.controller} (epoch {holding.epoch})"),
        ),
        (
            "Which broker first?",
            "None went" if gone is None else f"Broker {gone.broker}, {_ending(gone, records)}: {at(gone.to_ms)}",
        ),
        *moved,
    ]


def _ending(life: Any, records: Records) -> str:
    """As the record has it, and why, where that is known."""
    causes = (
        one.cause for one in records["record_departures"] if (one.broker, one.gone_ms) == (life.broker, life.to_ms)
    )
    cause = next(causes, "unknown")
    return life.ended if cause in ("unknown", life.ended) else f"{cause} ({life.ended})"


def phases_of(records: Records) -> list[tuple[str, ...]]:
    """Returns the phases of a migration, for a terminal."""
    span = _span_of(records)
    at = clock if span is None else span.clock
    return [
        (one.phase, at(one.from_ms), at(one.to_ms), ", ".join(map(str, one.controllers)) or "-", one.grade)
        for one in records["record_migration_phases"]
    ]


def _listed(names: Iterable[str]) -> str:
    known = list(names)
    more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
    return ", ".join(known[:LISTED]) + more


def verdict_of(records: Records) -> Verdict:
    """As `report.verdict` has it of logs."""
    outages, elections = records["record_outages"], records["record_elections"]
    still = any(one.to_ms is None for one in outages)
    unclean = [one for one in elections if one.unclean]
    lost = any(one.extent != "nothing" for one in records["record_losses"])
    mood = "bad" if still or lost or not knows(records) else "worn" if outages or unclean else "good"
    served = [one.acted_ms - one.to_ms for one in outages if one.acted_ms is not None and one.to_ms is not None]
    return Verdict(
        mood,
        sentence_for(records),
        {
            "outages": str(len(outages)),
            "longest": lasting(
                max((one.to_ms - one.from_ms for one in outages if one.to_ms is not None), default=None)
            ),
            "until the new leader acted, at most": lasting(max(served, default=None)),
            "elections": str(len(elections)),
            "unclean": str(len(unclean)),
            "controllers": str(len(records["record_tenures"])),
            "operations": str(len(records["record_operations"])),
        },
    )


def section_for(records: Records, quote: Quoting) -> str:
    """Returns the part of a page."""
    modes = sorted({one.mode for rows in records.values() for one in rows if hasattr(one, "mode")})
    what = " and ".join(_MODES[one] for one in modes)
    outages, elections = records["record_outages"], records["record_elections"]
    unclean = [one for one in elections if one.unclean]
    span = _span_of(records)
    at = span.clock if span is not None else clock
    verdict = verdict_of(records)
    numbers = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in verdict.numbers.items())
    asked = ""
    if knows(records):
        asked = "".join(f"<dt>{escape(one)}</dt><dd>{escape(said)}</dd>" for one, said in summary_of(records, at))
    void = [one for one in records["record_fencings"] if one.outcome == "void"]
    parts = [
        f'<div class="verdict {verdict.mood}"><strong>{escape(verdict.sentence)}</strong>'
        f'<dl class="asked">{asked}</dl><dl class="numbers">{numbers}</dl></div>',
        "<h3>Outages</h3>", _outages(outages, at),
        *_went(records, at),
        "<h3>Unclean elections</h3>", _elections(unclean, at),
        "<h3>What they lost</h3>", _losses(records["record_losses"], at),
        "<h3>Controllers</h3>", _tenures(records["record_tenures"], at),
        "<h3>Reassignments, deletions, creations, growth</h3>", _operations(records["record_operations"], at),
        "<h3>Settings</h3>", _settings(records["record_config_changes"], at),
        "<h3>Lines that never came true</h3>", _void(void, at, quote),
        "<h3>Clocks</h3>", _clocks(records["record_clocks"]),
        "<h3>What it rests on</h3>", _sources(records["record_sources"]),
    ]  # fmt: skip
    if records["record_migrations"]:
        parts[1:1] = ["<h3>From ZooKeeper to KRaft</h3>", *_migration(records, at)]
    if span is not None:
        parts.insert(1, _lanes(records, span))
    return f'<section id="certain"><h2>Known for certain, from {escape(what)}</h2>{"".join(parts)}</section>'


def page_for_records(records: Records) -> str:
    """Returns the whole page, where there is no log."""
    clusters = ", ".join(sorted({one.cluster for rows in records.values() for one in rows}))
    here = files("sparkjobs.report")
    style = here.joinpath("style.css").read_text(encoding="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>What happened: {escape(clusters)}</title><style>{style}</style></head><body>"
        f"<h1>What happened to {escape(clusters)}</h1>{section_for(records, lambda file_id, line_no: None)}"
        '<p class="soft">No log was handed over: why brokers went, when they acted and what was lost, logs say.</p>'
        "</body></html>"
    )


def beside_logs(page: str, records: Records, quote: Quoting) -> str:
    """Returns the page of the logs, with the certain facts above it."""
    return page.replace("</nav>", f"</nav>{section_for(records, quote)}", 1)


def hidden(records: Records, hide: Redactor) -> dict[str, list[Any]]:
    """Without hosts, addresses and folders."""
    found = {name: redacted(rows, hide) for name, rows in records.items()}
    found["record_sources"] = [
        msgspec.structs.replace(
            one, said=_without_paths(one.said, hide), node=one.node and _without_paths(one.node, hide)
        )
        for one in found["record_sources"]
    ]
    return found


def _without_paths(words: str, hide: Redactor) -> str:
    return _PATH.sub(lambda found: hide.path(found[0]), words)


def _span_of(records: Records) -> Span | None:
    moments = [one.from_ms for name in ("record_tenures", "record_broker_lives") for one in records[name]]
    moments += [one.to_ms for one in records["record_broker_lives"] if one.to_ms is not None]
    moments += [one.from_ms for one in records["record_partition_states"]]
    return Span(min(moments), max(moments)) if moments else None


def _lanes(records: Records, span: Span) -> str:
    """Draws the controllers, the brokers that could lead, and the times when partitions were without a leader."""
    lives = records["record_broker_lives"]
    lost = Counter(one.broker for one in lives if one.to_ms is not None and one.ended != "handed over")
    brokers = sorted(sorted({one.broker for one in lives}, key=lambda one: (-lost[one], one))[:_LANES])
    marks = [
        span.bar(0, one.from_ms, _end(one, span), f"seat seat{index % 2}", f"{one.controller}, epoch {one.epoch}: "
                 f"{span.clock(one.from_ms)} to {span.clock(one.to_ms)}")
        for index, one in enumerate(_longest(records["record_tenures"], span))
    ]  # fmt: skip
    for row, broker in enumerate(brokers, 1):
        for one in _longest([each for each in lives if each.broker == broker], span):
            words = (
                f"broker {broker}: {span.clock(one.from_ms)} to {span.clock(one.to_ms)}, {one.ended or 'still there'}"
            )
            marks.append(span.bar(row, one.from_ms, _end(one, span), "life", words))
    for one in _longest(records["record_outages"], span):
        words = f"{one.topic}-{one.partition}: {span.clock(one.from_ms)}, {lasting(_end(one, span) - one.from_ms)}"
        marks.append(span.bar(len(brokers) + 1, one.from_ms, _end(one, span), "outage", words))
    rows = ["controller", *(f"broker {one}" for one in brokers), "without a leader"]
    return picture(span, rows, marks, "Controllers and brokers over time, from the record")


def _longest(rows: Sequence[Any], span: Span) -> list[Any]:
    """As many as a row of the picture can show, in their order."""
    chosen = sorted(rows, key=lambda one: one.from_ms - _end(one, span))[:_MARKS]
    return sorted(chosen, key=lambda one: one.from_ms)


def _end(row: Any, span: Span) -> int:
    return span.to_ms if row.to_ms is None else int(row.to_ms)


def _outages(outages: Sequence[Any], at: Any) -> str:
    shown = worst(outages, lambda one: (one.to_ms is None, (one.to_ms or 0) - one.from_ms))
    rows = [
        row_of(f"{one.topic}-{one.partition}", (one.from_ms, at(one.from_ms)), _lasted(one), one.began, one.why or "-",
               _or_none(one.leader_before), f"{one.ended or 'not over'}{', unclean' if one.unclean else ''}",
               _or_none(one.leader), _acted(one), one.grade)
        for one in shown
    ]  # fmt: skip
    heads = (
        "partition",
        "from",
        "lasted",
        "began",
        "why",
        "led before",
        "ended",
        "led after",
        "which acted after",
        "grade",
    )
    return table_of(heads, rows, len(outages))


def _acted(row: Any) -> tuple[float, str]:
    """From the record to the leader's own line, by two clocks."""
    length = None if row.acted_ms is None or row.to_ms is None else row.acted_ms - row.to_ms
    return (-1 if length is None else length), lasting(length)


def _losses(losses: Sequence[Any], at: Any) -> str:
    """Those of which it is proved that they lost nothing are counted."""
    told = [one for one in losses if one.extent != "nothing"]
    rows = [
        row_of(f"{one.topic}-{one.partition}", (one.at_ms, at(one.at_ms)), one.how, _or_none(one.last_leader),
               str(one.leader), _offsets(one), one.extent, one.why)
        for one in worst(told, lambda one: (one.to_offset or 0) - (one.from_offset or 0))
    ]  # fmt: skip
    heads = ("partition", "at", "how", "led before", "leader", "offsets", "how exactly", "why")
    nothing = len(losses) - len(told)
    more = f'<p class="soft">{counted(nothing, "unclean election")} lost nothing.</p>' if nothing else ""
    return (table_of(heads, rows, len(told)) if told or not nothing else "") + more


def _offsets(loss: Any) -> str:
    if loss.from_offset is None:
        return "-"
    return f"from {loss.from_offset}" if loss.to_offset is None else f"{loss.from_offset} to {loss.to_offset - 1}"


def _void(void: Sequence[Any], at: Any, quote: Quoting) -> str:
    """Decisions of a controller that was none any more, or had no majority."""
    rows = []
    for one in worst(void, lambda one: one.at_ms):
        said = quote(one.file_id, one.line_no)
        words = "" if said is None else f"{said.path}:{said.line_no}: {said.text}"
        rows.append(row_of((one.at_ms, at(one.at_ms)), str(one.controller), f"fences broker {one.broker}", words))
    return table_of(("at", "controller", "says that it", "line"), rows, len(void))


def _went(records: Records, at: Any) -> list[str]:
    """KRaft: brokers and controllers that went, why, and each phase until another acted. Phases of ZooKeeper mode are
    told by its logs."""
    departures, takeovers = records["record_departures"], records["record_takeovers"]
    told = []
    if departures:
        rows = [
            row_of(str(one.broker), one.cause, at(one.heard_ms), at(one.asked_ms), (one.gone_ms, at(one.gone_ms)),
                   at(one.acted_ms), at(one.back_ms), (one.elected, str(one.elected)),
                   (one.leaderless, str(one.leaderless)), one.said)
            for one in sorted(worst(departures, lambda one: one.leaderless), key=lambda one: one.gone_ms)
        ]  # fmt: skip
        heads = ("broker", "why", "last heard", "asked to stop", "gone", "successors acted", "back", "taken over",
                 "left without a leader", "because")  # fmt: skip
        told += ["<h3>Brokers that went</h3>", table_of(heads, rows, len(departures))]
    if takeovers:
        rows = [
            row_of((one.epoch, str(one.epoch)), f"{one.before} to {one.controller}", one.cause, at(one.last_ms),
                   at(one.noticed_ms), (one.won_ms, at(one.won_ms)), at(one.active_ms), at(one.first_ms),
                   lasting(one.won_ms - one.last_ms), one.said)
            for one in sorted(worst(takeovers, lambda one: one.won_ms - one.last_ms), key=lambda one: one.won_ms)
        ]  # fmt: skip
        heads = ("epoch", "controller", "why", "last written", "missed by another", "elected", "active", "decides",
                 "nobody for", "because")  # fmt: skip
        told += ["<h3>Failovers of the controller, phase by phase</h3>", table_of(heads, rows, len(takeovers))]
    return told


def _migration(records: Records, at: Any) -> list[str]:
    """Returns each phase and its controllers; brokers; and what both records say differently."""
    phases = records["record_migration_phases"]
    rows = [
        row_of((one.number, str(one.number)), one.phase, (one.from_ms or 0, at(one.from_ms)), at(one.to_ms),
               _phase_lasted(one), ", ".join(map(str, one.controllers)) or "-", _place(one),
               "-" if one.logged_ms is None else at(one.logged_ms), one.grade, one.said)
        for one in phases[:ROWS_SHOWN]
    ]  # fmt: skip
    heads = ("", "phase", "from", "to", "lasted", "controllers", "began with", "logged at", "grade", "because")
    brokers = [
        row_of(str(one.broker), (one.registered_ms, at(one.registered_ms)), at(one.restarted_ms), one.grade)
        for one in records["record_migration_brokers"][:ROWS_SHOWN]
    ]
    differences = [
        row_of(one.kind, one.name, one.zookeeper or "-", one.kraft or "-", one.why)
        for one in records["record_migration_differences"][:ROWS_SHOWN]
    ]
    told = [table_of(heads, rows, len(phases))]
    if brokers:
        of_brokers = ("broker", "registered with KRaft", "restarted into KRaft mode", "grade")
        told.append(table_of(of_brokers, brokers, len(records["record_migration_brokers"])))
    told += [f'<p class="soft">{escape(_agreement(one))}</p>' for one in records["record_migrations"]]
    if differences:
        of_both = ("difference", "of", "ZooKeeper", "KRaft", "why")
        told.append(table_of(of_both, differences, len(records["record_migration_differences"])))
    return told


def _agreement(migration: Any) -> str:
    if not migration.compared:
        return f"{migration.said}."
    differ = f"{counted(migration.differences, 'difference')}" if migration.differences else "no difference"
    later = f" Later, KRaft's log went on for {counted(migration.later_changes, 'change')} that ZooKeeper never had."
    return f"{migration.said}: {differ}.{later if migration.later_changes else ''}"


def _phase_lasted(phase: Any) -> tuple[float, str]:
    """By two clocks where one end is a transaction of ZooKeeper's."""
    length = None if phase.to_ms is None or phase.from_ms is None else phase.to_ms - phase.from_ms
    return (-1 if length is None else length), "-" if length is None or length < 0 else lasting(length)


def _place(phase: Any) -> str:
    if phase.zxid is not None:
        return f"transaction {phase.zxid:#x}"
    return "-" if phase.offset is None else f"offset {phase.offset}"


def _clocks(clocks: Sequence[Any]) -> str:
    rows = [
        row_of(str(one.broker), str(one.controller), (one.lines, str(one.lines)), (one.least_ms, f"{one.least_ms} ms"),
               (one.median_ms, f"{one.median_ms} ms"), (one.most_ms, f"{one.most_ms} ms"),
               f"behind by {-one.least_ms} ms at least" if one.least_ms < 0 else "nothing wrong")
        for one in clocks
    ]  # fmt: skip
    heads = ("broker", "controller", "records", "acted after, least", "median", "most", "the broker's clock")
    return table_of(heads, rows, len(clocks))


def _lasted(row: Any) -> tuple[float, str]:
    length = None if row.to_ms is None else row.to_ms - row.from_ms
    return (-1 if length is None else length), "not over" if length is None else lasting(length)


def _or_none(number: int | None) -> str:
    return "-" if number is None else str(number)


def _elections(elections: Sequence[Any], at: Any) -> str:
    rows = [
        row_of(f"{one.topic}-{one.partition}", (one.at_ms, at(one.at_ms)), one.how, str(one.leader),
               ", ".join(map(str, one.isr_before)) or "nobody", ", ".join(map(str, one.elr_before)) or "-", one.grade)
        for one in worst(elections, lambda one: one.how == "unclean")
    ]  # fmt: skip
    heads = ("partition", "at", "how", "leader", "in sync before", "eligible before", "grade")
    return table_of(heads, rows, len(elections))


def _tenures(tenures: Sequence[Any], at: Any) -> str:
    rows = [
        row_of((one.epoch, str(one.epoch)), str(one.controller), (one.from_ms, at(one.from_ms)),
               _or_none(None if one.active_ms is None else one.active_ms - one.from_ms), at(one.renounced_ms),
               "holds the seat" if one.to_ms is None else at(one.to_ms), one.why_ended or "-", one.grade)
        for one in worst(tenures, lambda one: one.from_ms)
    ]  # fmt: skip
    heads = (
        *("epoch", "controller", "from", "active after ms", "renounced", "to, at the latest", "why it ended", "grade"),
    )
    return table_of(heads, rows, len(tenures))


def _operations(operations: Sequence[Any], at: Any) -> str:
    rows = [
        row_of(one.kind, one.topic if one.partition is None else f"{one.topic}-{one.partition}",
               (one.from_ms, at(one.from_ms)), _lasted(one), one.outcome, (one.partitions, str(one.partitions)),
               f"{list(one.replicas_before)} to {list(one.replicas)}" if one.replicas else "-", one.grade)
        for one in worst(operations, lambda one: (one.to_ms is None, one.from_ms))
    ]  # fmt: skip
    heads = ("what", "of", "from", "took", "outcome", "partitions", "replicas", "grade")
    return table_of(heads, rows, len(operations))


def _settings(changes: Sequence[Any], at: Any) -> str:
    rows = [
        row_of(
            (one.at_ms, at(one.at_ms)), one.kind, one.name or "(default)", one.key, one.before or "-", one.after or "-"
        )
        for one in worst(changes, lambda one: one.at_ms)
    ]
    return table_of(("at", "of", "name", "setting", "before", "after"), rows, len(changes))


def _sources(sources: Sequence[Row]) -> str:
    rows = [
        f"<tr><td>{escape(one.kind)}</td><td>{escape(one.node or '-')}</td><td>{escape(one.said)}</td></tr>"
        for one in worst(sources, lambda one: one.kind != "history")
    ]
    return table_of(("what", "node", "says"), rows, len(sources))
