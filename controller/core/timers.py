"""What the clock makes due: deletions to be tried again, drains to be carried on,
registrations to be written down, the automatic preferred election."""

from __future__ import annotations

from collections.abc import Iterator

from controller.core import brokers, deletion, drains
from controller.core.balance import balance
from controller.core.events import TimePassed
from controller.core.work import Context, Work


def on_time_passed(context: Context, event: TimePassed) -> Iterator[Work]:
    yield from deletion.on_time_passed(context, event)
    yield from drains.on_time_passed(context)
    yield from brokers.on_time_passed(context)
    if event.is_balance_due:
        yield from balance(context, context.cluster.imbalance_percentage)
