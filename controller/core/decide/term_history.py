"""The history of terms: controller, times, and reasons of their ends, kept in ZooKeeper for the last 200 terms.

A claim notes its term, which writes its own record once it has loaded, and closes the records of those before it that
had no time to.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec

from controller.core.changes.duties import TermRecorded
from controller.core.decide.work import Context, Work, work_of
from controller.core.events import TermTold
from controller.core.formats import TermZnode

TERMS_KEPT = 200


def on_term_told(context: Context, event: TermTold) -> Iterator[Work]:
    known, epoch = context.cluster.duties.terms, context.epoch
    to_ms, why = event.to_ms, event.why
    if to_ms is None and epoch in known:  # its end stands; a phase that is told after it takes nothing back
        to_ms, why = known[epoch].to_ms, known[epoch].why
    own = TermZnode(context.cluster.controller_id, event.from_ms, to_ms, why, dict(event.phases))
    yield _record(epoch, own)
    dropped = sorted({*known, epoch})[:-TERMS_KEPT]
    before = sorted(one for one in known if one < epoch)
    for earlier, later in pairwise((*before, epoch)):
        if known[earlier].to_ms is None and earlier not in dropped:
            to_ms = own.from_ms if later == epoch else known[later].from_ms
            why = event.why_before if later == epoch else "unknown"
            yield _record(earlier, msgspec.structs.replace(known[earlier], to_ms=to_ms, why=why))
    for old in dropped:
        yield _record(old, None)


def _record(epoch: int, record: TermZnode | None) -> Work:
    return work_of(0, TermRecorded(epoch, record))
