"""Violations of `checker/rules_records.py`: clients, logs and lines of a good history, changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.faults.checker.history import History
from tests.faults.checker.records import Copy, Kept, Records, Relied
from tests.faults.violations import Violation
from tests.faults.violations_client_calls import with_an_unclean_choice

FAR = 1 << 60


def records_of(history: History) -> Records:
    assert history.records is not None
    return history.records


def leaders_copy(history: History) -> int:
    """Where the log of a leader is that clients relied on, by its place."""
    records = records_of(history)
    relied = {one.key for one in records.relied}
    led = {(one["topic_id"], one["partition"]): one["leader"] for one in history.lines
           if one["kind"] == "partition" and one.get("leader") is not None}  # fmt: skip
    return next(
        place
        for place, copy in enumerate(records.copies)
        if copy.key in relied and len(copy.batches) > 3 and led[copy.key] == copy.broker_id
    )


def with_copy(change: Callable[[Copy], Copy], *, of_follower: bool = False) -> Violation:
    """The log of a leader, or of a follower, is another one in the end."""

    def violate(history: History) -> None:
        copies = records_of(history).copies
        place = leaders_copy(history)
        if of_follower:
            key = copies[place].key
            place = next(number for number, one in enumerate(copies) if one.key == key and number != place)
        copies[place] = change(copies[place])

    return violate


def with_relied(how: str, **said: Any) -> Violation:
    """Something that clients relied on last, where it stands in the end, is said otherwise."""

    def violate(history: History) -> None:
        records = records_of(history)
        key = records.copies[leaders_copy(history)].key
        place = max(number for number, one in enumerate(records.relied) if one.how == how and one.key == key)
        records.relied[place] = records.relied[place]._replace(**said)

    return violate


def without_all(copy: Copy) -> Copy:
    return copy._replace(batches=())


def without_first(copy: Copy) -> Copy:
    return copy._replace(batches=copy.batches[1:])


def with_last_again(copy: Copy) -> Copy:
    last = copy.batches[-1]
    return copy._replace(batches=(*copy.batches, last._replace(offset=last.offset + last.count)))


def with_another_leader_epoch(copy: Copy) -> Copy:
    changed = copy.batches[1]._replace(leader_epoch=77)
    return copy._replace(batches=(copy.batches[0], changed, *copy.batches[2:]))


def with_the_newest_first(history: History) -> None:
    """Of a producer that sends unacknowledged batches again."""
    records = records_of(history)
    again = {one.name: one.producer for one in records.sent if one.is_idempotent}

    def turned(copy: Copy) -> Copy | None:
        places = [place for place, one in enumerate(copy.batches) if one.name in again]
        for first in places:
            for later in places:
                before, after = copy.batches[first], copy.batches[later]
                if first < later and again[before.name] == again[after.name]:
                    batches = list(copy.batches)
                    batches[first] = Kept(before.offset, before.count, before.leader_epoch, after.name)
                    batches[later] = Kept(after.offset, after.count, after.leader_epoch, before.name)
                    return copy._replace(batches=tuple(batches))
        return None

    for place, copy in enumerate(records.copies):
        if (changed := turned(copy)) is not None:
            records.copies[place] = changed
            return
    raise AssertionError("no producer sent twice")


def with_two_at_one_offset(history: History) -> None:
    records = records_of(history)
    one = next(one for one in records.relied if one.how == "read")
    records.relied.append(one._replace(name="alpha-0 x 1"))


def with_a_truncation(history: History) -> None:
    """Of existing records."""
    copy = records_of(history).copies[leaders_copy(history)]
    line = next(one for one in history.lines if one.get("topic_id") == copy.key[0])
    said = {"kind": "truncation", "topic_id": copy.key[0], "partition": copy.key[1], "leader_epoch": 99}
    about = {"broker_id": 77, "records": 1, "records_lost": 1, "reason": "offsets 0 to 0: 1 record"}
    history.lines.append({**line, **said, **about, "source": None})


def with_a_loss_that_nobody_says(history: History) -> None:
    """An unclean choice, after which something is not there that its replicas had to keep."""
    with_an_unclean_choice()(history)
    records = records_of(history)
    topic_ids = {one["topic"]: one["topic_id"] for one in history.lines if one["kind"] == "partition"}
    lost = Relied("acknowledged", (topic_ids["orders"], 0), FAR, "orders-0 x 1", 1, -1, 0, frozenset({1, 2, 3}))
    records.relied.append(lost)


BAD_RECORDS: dict[str, Violation] = {
    "s18_the_whole_isr_has_acknowledged_records": with_relied("acknowledged", held_by=frozenset()),
    "s18_the_whole_isr_has_consumed_records": with_relied("read", held_by=frozenset()),
    "s18_readers_of_an_offset_see_the_same": with_two_at_one_offset,
    "s19_clean_elections_lose_nothing": with_copy(without_all),
    "s19_lost_records_are_announced": with_a_loss_that_nobody_says,
    "s19_announced_losses_are_true": with_a_truncation,
    "s19_nothing_is_doubled": with_copy(with_last_again, of_follower=True),
    "s19_nothing_is_reordered": with_the_newest_first,
    "s19_logs_agree_below_the_high_watermark": with_copy(without_first, of_follower=True),
}
MORE_RECORDS: list[tuple[str, Violation]] = [
    ("s19_clean_elections_lose_nothing", with_copy(lambda copy: copy._replace(high_watermark=0))),
    ("s19_clean_elections_lose_nothing", with_relied("read", offset=FAR)),
    ("s19_logs_agree_below_the_high_watermark", with_copy(with_another_leader_epoch, of_follower=True)),
]
