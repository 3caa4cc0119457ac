"""What the clock makes due: deletions to be tried again, and the automatic preferred election."""

from __future__ import annotations

from collections.abc import Iterator

from controller.core import deletion
from controller.core.balance import balance
from controller.core.events import TimePassed
from controller.core.work import Context, Work


def on_time_passed(context: Context, event: TimePassed) -> Iterator[Work]:
    yield from deletion.on_time_passed(context, event)
    if event.is_balance_due:
        yield from balance(context, context.cluster.imbalance_percentage)
