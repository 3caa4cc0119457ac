"""Rules about records: the whole ISR had all records that clients relied on, clean elections lose none of them, and
losses by others are announced.

Clients rely on records acknowledged to `acks=all`, and on consumed ones. Of runs without records these rules say
nothing; of partitions that are gone in the end, or whose state a tool deleted, they judge only observations in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from weakref import WeakKeyDictionary

from tests.faults.checker.history import History
from tests.faults.checker.isr_history import Partition, Standing
from tests.faults.checker.records import Kept, LogKey, Relied, sent_anew
from tests.faults.checker.replay_facts import Known, RunRule
from tests.faults.checker.writers import Wrong

_STANDING: Final[WeakKeyDictionary[Known, Standing]] = WeakKeyDictionary()


def s18_the_whole_isr_has_acknowledged_records(history: History, known: Known) -> Iterator[Wrong]:
    yield from _not_everywhere(history, known, "acknowledged")


def s18_the_whole_isr_has_consumed_records(history: History, known: Known) -> Iterator[Wrong]:
    """No client reads above the high watermark."""
    yield from _not_everywhere(history, known, "read")


def s18_readers_of_an_offset_see_the_same(history: History, known: Known) -> Iterator[Wrong]:
    """Two batches at one offset, both relied on: an election between their leader epochs has lost the earlier one. Its
    leader may give it to readers still, for as long as it has not heard of that election."""
    standing = _standing(history, known)
    first: dict[tuple[LogKey, int], Relied] = {}
    for one in standing.records.relied:
        other = first.setdefault((one.key, one.offset), one)
        partition = standing.partitions.get(one.key)
        is_lost = partition is None or partition.losses_after(other) or partition.losses_after(one)
        if other.name != one.name and partition is not None and not is_lost:
            yield partition.name, f"{other.name!r} and {one.name!r} were both {one.how} at offset {one.offset}"
        first[one.key, one.offset] = one


def s19_clean_elections_lose_nothing(history: History, known: Known) -> Iterator[Wrong]:
    standing = _standing(history, known)
    for partition, one in _lost(standing):
        if not partition.losses_after(one):
            yield (
                partition.name,
                f"{one.name!r} was {one.how} at offset {one.offset}, and is lost by no unclean election",
            )


def s19_lost_records_are_announced(history: History, known: Known) -> Iterator[Wrong]:
    """By each replica that had it, and was to keep it. Of a run where the replicas that had it are not known: by any,
    unless a machine died or a disk was lost."""
    if history.lost_lines:
        return
    standing = _standing(history, known)
    for partition, one in _lost(standing):
        said_by = {
            each.broker_id for each in standing.truncated if each.key == one.key and each.start <= one.offset < each.end
        }
        silent = sorted(
            broker_id
            for broker_id in (one.held_by or frozenset()) - said_by
            if standing.had_to_keep(one.key, broker_id, one.zxid or 0)
        )
        if silent or (one.held_by is None and not said_by and not standing.records.damages):
            yield partition.name, f"{one.name!r} at offset {one.offset} is lost, and {silent or 'nobody'} said nothing"


def s19_announced_losses_are_true(history: History, known: Known) -> Iterator[Wrong]:
    """Committed records go by an election that could lose records, and are not there any more. An unclean leader's
    records in between may have stood at the same offsets."""
    standing = _standing(history, known)
    for one in standing.truncated:
        partition = standing.partitions.get(one.key)
        if partition is None or not one.committed:
            continue
        epochs = [loss.leader_epoch for loss in partition.losses if loss.leader_epoch <= one.leader_epoch]
        said = f"broker {one.broker_id} truncated {one.committed} committed records from offset {one.start} on"
        if not epochs:
            yield partition.name, f"{said}, and no election lost any"
            continue
        copies = standing.copies(one.key)
        for kept in copies[0].batches if copies is not None else ():
            is_within = one.start <= kept.offset < one.start + one.committed
            may_be_another = any(kept.leader_epoch < epoch < one.leader_epoch for epoch in epochs)
            if is_within and kept.leader_epoch < min(epochs) and not may_be_another:
                yield partition.name, f"{said}, and {kept} is there"


def s19_nothing_is_doubled(history: History, known: Known) -> Iterator[Wrong]:
    """However often it was sent, by every producer that may send a batch again, in one life of it."""
    for name, copy_of, batches in _logs(history, known):
        seen: dict[str, int] = {}
        for one in batches:
            if one.name in seen:
                yield name, f"broker {copy_of} has {one.name!r} at offsets {seen[one.name]} and {one.offset}"
            seen[one.name] = one.offset


def s19_nothing_is_reordered(history: History, known: Known) -> Iterator[Wrong]:
    """Each idempotent producer's batches stand in the order in which it sent them."""
    sent = {one.name: one for one in (history.records.sent if history.records is not None else ()) if one.is_idempotent}
    for name, copy_of, batches in _logs(history, known):
        last: dict[str, int] = {}
        for one in batches:
            by = sent.get(one.name)
            if by is not None and by.number < last.get(by.producer, 0):
                yield name, f"broker {copy_of} has {one.name!r} behind number {last[by.producer]}"
            if by is not None:
                last[by.producer] = by.number


def s19_logs_agree_below_the_high_watermark(history: History, known: Known) -> Iterator[Wrong]:
    """In the end: each replica's own, and the leader's for each in-sync replica."""
    standing = _standing(history, known)
    for key, partition in standing.partitions.items():
        copies = standing.copies(key)
        if copies is None:
            continue
        leader, others = copies
        isr = known.world.states[partition.name].isr
        for other in others:
            below = (
                leader.high_watermark if other.broker_id in isr else min(other.high_watermark, leader.high_watermark)
            )
            theirs, ours = ([each for each in log if each.offset < below] for log in (leader.batches, other.batches))
            if theirs != ours:
                parted = next((one for one in zip(theirs, ours, strict=False) if one[0] != one[1]), None)
                said = f"{len(theirs)} and {len(ours)} batches" if parted is None else f"{parted[0]} and {parted[1]}"
                brokers = f"brokers {leader.broker_id} and {other.broker_id}"
                yield partition.name, f"{brokers} have {said} below high watermark {below}"


def _standing(history: History, known: Known) -> Standing:
    """One for all rules about a run."""
    if known not in _STANDING:
        _STANDING[known] = Standing(history, known)
    return _STANDING[known]


def _not_everywhere(history: History, known: Known, how: str) -> Iterator[Wrong]:
    standing = _standing(history, known)
    for one in standing.records.relied:
        partition = standing.partitions.get(one.key)
        if one.how != how or one.held_by is None or one.zxid is None or partition is None:
            continue
        zxid, stood = one.zxid, partition.at(one.zxid)
        if stood is None or standing.is_going(partition, stood, zxid):
            continue
        if any(loss.zxid <= zxid for loss in partition.losses_after(one)):
            continue  # its leader has not heard yet that another one was elected uncleanly
        lacking = [
            member
            for member in stood.state.isr
            if member not in one.held_by and not partition.is_damaged(stood, member, zxid)
        ]
        if lacking:
            isr = list(stood.state.isr)
            said = f"broker {one.broker_id}: {one.name!r} at offset {one.offset} was {how}"
            yield partition.name, f"{said} while the ISR was {isr}, and {lacking} had it not"


def _lost(standing: Standing) -> Iterator[tuple[Partition, Relied]]:
    """Returns records that clients relied on and cannot read in the end."""
    logs: dict[LogKey, tuple[int, set[tuple[int, str]]]] = {}
    for key in {one.key: None for one in standing.records.relied}:
        if (copies := standing.copies(key)) is not None:
            leader = copies[0]
            logs[key] = leader.high_watermark, {(one.offset, one.name) for one in leader.batches}
    for one in standing.records.relied:
        high_watermark, batches = logs.get(one.key, (0, set()))
        is_readable = one.offset < high_watermark and (one.offset, one.name) in batches
        if one.key in logs and not is_readable:
            yield standing.partitions[one.key], one


def _logs(history: History, known: Known) -> Iterator[tuple[tuple[str, int] | None, int, tuple[Kept, ...]]]:
    """But for what a producer sent once more in another life: then it is no repetition."""
    for copy in history.records.copies if history.records is not None else ():
        name, anew = known.names.get(copy.key[0]), sent_anew(copy.batches)
        batches = tuple(one for one in copy.batches if one.offset not in anew)
        yield None if name is None else (name, copy.key[1]), copy.broker_id, batches


RULES: Final[tuple[RunRule, ...]] = tuple(
    value for name, value in sorted(globals().items()) if re.match(r"s\d\d_", name)
)
