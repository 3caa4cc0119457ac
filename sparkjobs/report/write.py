"""Puts a report on disk: the page, the same as JSON and as Parquet, and the digest by which two runs compare.

The files appear whole or not at all. With `redact`, hosts and addresses are replaced, the same one always by the same.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from sparkjobs.report.exact_facts import Records, beside_logs, hidden, knows, page_for_records, verdict_of
from sparkjobs.report.findings import findings_for
from sparkjobs.report.page import Input, Quote, Quoting, page_for
from sparkjobs.report.redact import Redactor, outline, redacted, texts_in
from sparkjobs.report.verdict import summary_for, verdict_for
from sparkjobs.rules.facts import Place
from sparkjobs.rules.rules import Answers
from sparkjobs.tables.gold import GOLD
from sparkjobs.tables.record import RECORD
from sparkjobs.tables.silver import BronzeFile, Row

#: from here on a process of its own is worth its start
_MANY_ROWS: Final = 20_000
_FENCINGS_QUOTED: Final = 1_000


def places_of_findings(answers: Answers) -> set[Place]:
    """Returns the places of the lines that a report quotes, out of possibly millions."""
    said: Sequence[Any] = answers.get("fencings", ())  # the record will know which of them are void
    places = {Place(one.file_id, one.line_no) for one in said[:_FENCINGS_QUOTED]}
    return places | {Place(one.file_id, one.line_no) for one in findings_for(answers) if one.file_id}


def quoting(files: Iterable[BronzeFile], lines: Mapping[Place, str]) -> Quoting:
    """With the words of these lines at hand."""
    paths = {file.file_id: file.paths[0] for file in files}

    def quote(file_id: str, line_no: int) -> Quote | None:
        text = lines.get(Place(file_id, line_no))
        return None if text is None else Quote(paths.get(file_id, file_id[:12]), line_no, text)

    return quote


def write_report(
    out: Path,
    answers: Answers,
    quote: Quoting,
    read: Input,
    *,
    made_by: str = "",
    redact: bool = False,
    records: Records | None = None,
) -> Path:
    """Writes `report.html`, `report.json`, `gold/*.parquet` and `digest.txt` under `out`, and returns the page.
    `records`: the rows known from the cluster's own records, if there are any."""
    out.mkdir(parents=True, exist_ok=True)
    digest = digest_of({**answers, **(records or {})})
    if redact:
        hide = Redactor()
        hide.learn(texts_in(records or {}))
        answers, quote, read = _hidden(answers, quote, read, hide)
        records = None if records is None else hidden(records, hide)
    with _beside(_write_gold, out / "gold", {**answers, **(records or {})}):
        page = page_for(answers, quote, read, made_by, is_known=records is not None and knows(records))
        if records is not None:
            page = beside_logs(page, records, quote) if read.files else page_for_records(records)
        _put(out / "report.html", page.encode())
        _put(out / "report.json", json_for(answers, quote, read, digest, records or {}).encode())
        _put(out / "digest.txt", f"{digest}\n".encode())
    return out / "report.html"


@contextmanager
def _beside(write: Callable[[Path, Answers], None], gold: Path, answers: Answers) -> Iterator[None]:
    """Write the tables meanwhile, in a process of its own where there are many rows: it shares them by its fork."""
    if sum(map(len, answers.values())) < _MANY_ROWS or not hasattr(os, "fork") or "pyspark" in sys.modules:
        yield
        write(gold, answers)
        return
    process = get_context("fork").Process(target=write, args=(gold, answers))
    process.start()
    try:
        yield
    finally:
        process.join()
    if process.exitcode:
        raise ChildProcessError(f"{gold} could not be written; what was the trouble is said above")


def _write_gold(gold: Path, answers: Answers) -> None:
    """Where pyarrow is; the base install has the page and the JSON, which hold the same."""
    if find_spec("pyarrow") is not None:
        gold.mkdir(exist_ok=True)
        for name, rows in answers.items():
            write_parquet(gold / f"{name}.parquet", (GOLD | RECORD)[name], rows)


def _hidden(answers: Answers, quote: Quoting, read: Input, hide: Redactor) -> tuple[Answers, Quoting, Input]:
    """Returns all of it with its names replaced, and with unread lines without words: a name that is never shown cannot
    be forgotten."""
    places = sorted({(row.file_id, row.line_no) for rows in answers.values() for row in rows if _has_place(row)})  # type: ignore[attr-defined]
    quotes = {place: said for place in places if (said := quote(*place)) is not None}
    hide.learn(said.text for said in quotes.values())
    hide.learn(texts_in(answers))
    hidden = {place: said._replace(path=hide.path(said.path), text=hide(said.text)) for place, said in quotes.items()}
    told = {name: redacted(rows, hide) for name, rows in answers.items()}
    files = [_hidden_file(file, hide) for file in read.files]
    odd = [msgspec.structs.replace(row, line=outline(row.line)) for row in read.quarantine]
    rest = Input(redacted(read.counts, hide), odd, read.skew, files)
    return told, lambda file_id, line_no: hidden.get((file_id, line_no)), rest


def _hidden_file(file: BronzeFile, hide: Redactor) -> BronzeFile:
    """Returns the file with the names in its paths and in its trouble replaced."""
    trouble = file.trouble or ""
    for path in file.paths:
        trouble = trouble.replace(path, hide.path(path))
    return msgspec.structs.replace(file, paths=tuple(map(hide.path, file.paths)), trouble=hide(trouble) or None)


def _has_place(row: Row) -> bool:
    return "file_id" in row.__struct_fields__


def json_for(
    answers: Answers, quote: Quoting, read: Input, digest: str, records: Records = MappingProxyType({})
) -> str:
    """Returns all that is on the page, and all rows."""
    verdict = verdict_of(records) if knows(records) else verdict_for(answers)
    findings = [
        {
            "at_ms": one.at_ms,
            "weight": one.weight,
            "kind": one.kind,
            "words": one.words,
            "line": None if (said := quote(one.file_id, one.line_no)) is None else said._asdict(),
        }
        for one in findings_for(answers)
    ]
    whole = {
        "verdict": {"mood": verdict.mood, "sentence": verdict.sentence, "numbers": dict(verdict.numbers)},
        "summary": dict(summary_for(answers)),
        "findings": findings,
        "tables": dict(sorted({**answers, **records}.items())),  # whichever engine found them, in whichever order
        "input": read._asdict(),
        "digest": digest,
    }
    return msgspec.json.encode(whole).decode()


def json_lines(answers: Answers) -> Iterator[bytes]:
    """Returns gold as sorted lines: equal for equal answers, whichever executor found them."""
    encoder = msgspec.json.Encoder()
    for name in sorted(answers):
        head = b'{"table":' + encoder.encode(name) + b","
        for row in answers[name]:
            yield head + encoder.encode(row)[1:] + b"\n"


def digest_of(answers: Answers) -> str:
    """sha256 of gold, exported sorted as JSON lines."""
    digest = hashlib.sha256()
    for line in json_lines(answers):
        digest.update(line)
    return digest.hexdigest()


def write_parquet(path: Path, table: type[Row], rows: Sequence[Row]) -> None:
    """One table, with the types of its declaration."""
    import pyarrow as pa  # noqa: PLC0415 - half a second that explaining one partition need not wait for
    import pyarrow.parquet as pq  # noqa: PLC0415

    from sparkjobs.tables.arrow import batch_of  # noqa: PLC0415

    half = path.with_suffix(".part")
    pq.write_table(pa.Table.from_batches([batch_of(table, rows)]), half, compression="zstd")
    half.replace(path)


def _put(path: Path, content: bytes) -> None:
    half = path.with_suffix(".part")
    half.write_bytes(content)
    half.replace(path)
