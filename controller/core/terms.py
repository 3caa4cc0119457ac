"""Who was controller, from when to when, and why it ended: kept in ZooKeeper for the last 200 terms.

Each holder writes its own record, and closes that of the one before it, who may have had no time to.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from controller.core.admin import TermRecorded
from controller.core.events import TermTold
from controller.core.formats import TermZnode
from controller.core.work import Context, Decided, Work

TERMS_KEPT = 200


def on_term_told(context: Context, event: TermTold) -> Iterator[Work]:
    known, epoch = context.cluster.duties.terms, context.epoch
    to_ms, why = event.to_ms, event.why
    if to_ms is None and epoch in known:  # its end stands; a phase that is told after it takes nothing back
        to_ms, why = known[epoch].to_ms, known[epoch].why
    own = TermZnode(context.cluster.controller_id, event.from_ms, to_ms, why, dict(event.phases))
    yield _record(epoch, own)
    before = max((one for one in known if one < epoch), default=None)
    if before is not None and known[before].to_ms is None:
        yield _record(before, msgspec.structs.replace(known[before], to_ms=event.from_ms, why=event.why_before))
    for old in sorted({*known, epoch})[:-TERMS_KEPT]:
        yield _record(old, None)


def _record(epoch: int, record: TermZnode | None) -> Work:
    change = TermRecorded(epoch, record)
    return Work(change.subject, partial(_write, change))


def _write(change: TermRecorded) -> Iterator[Decided]:
    yield 0, change
