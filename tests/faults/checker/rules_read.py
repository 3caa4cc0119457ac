"""Rules about the reads of controllers: no read is older than an earlier one, and no change goes unnoticed on which
they rely.

Only a simulation knows the readings (`History.readings`). For other runs these rules say nothing. Where the readings
are known, a controller without one has missed everything, and is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.faults.checker.history import SLACK_MS, Commit, History, Write
from tests.faults.checker.readings import Kind, Readings
from tests.faults.checker.replay_facts import Known, RunRule, Tenure
from tests.faults.checker.writers import SEAT, Wrong
from tests.faults.hostile import HIDE, HIDE_SEAT

#: changes that every controller relies upon hearing of, watched or not: Kafka's watches, one for one
_LISTS: Final = (
    "/brokers/ids", "/brokers/topics", "/admin/delete_topics", "/config/changes", "/isr_change_notification",
    "/log_dir_event_notification",
)  # fmt: skip
HEAL: Final = "heal"
HIDING: Final = (HIDE, HIDE_SEAT)
_NODES: Final = (SEAT, "/admin/reassign_partitions", "/admin/preferred_replica_election")
#: nodes that brokers with records watch by the same session, of the topics that they have; controllers hear of changes
_OF_BROKERS: Final = re.compile(r"/config/topics/[^/]+")
_BELOW: Final = re.compile(r"/brokers/(ids|topics)/[^/]+")
#: of watches that fire with the znode itself
_KINDS: Final[tuple[Kind, ...]] = ("data", "watch", "stat")
#: by which readings a change shows; that a znode is gone, any of them tells
_SHOWN_BY: Final[dict[Kind, tuple[Kind, ...]]] = {
    "data": ("data",),
    "list": ("list",),
    "stat": ("stat", "data", "list"),
}
#: a silence that a session survives, and the wait in it: 5.7 s was the longest of 100,000
READ_WITHIN_MS: Final = 10_000
#: where nothing was in the way; sooner than any look
READ_AT_ONCE_MS: Final = 2_000
#: when everything rests; 0.06 s was the longest
READ_AT_REST_MS: Final = 200


class Change(NamedTuple):
    """The change that a reading of this kind shows since a commit. `gone_zxid`: when the znode next went, which a later
    list of its parent shows, too."""

    kind: Kind
    path: str
    zxid: int
    at_ms: int
    is_gone: bool = False
    gone_zxid: int | None = None


def s32_nothing_is_read_older_than_before(history: History, known: Known) -> Iterator[Wrong]:
    """By the same session, over every reconnect."""
    newest: dict[int, int] = {}
    for one in history.readings or ():
        before = newest.get(one.session, 0)
        if one.kind == "watch":
            continue  # it shows nothing: it is as of an earlier reading
        if one.zxid < before:
            yield None, f"session {one.session:#x} read {one.paths[0]} as of {one.zxid:#x} after {before:#x}"
        newest[one.session] = max(one.zxid, before)


def s32_controllers_read_every_change_that_they_rely_on(history: History, known: Known) -> Iterator[Wrong]:
    """Soon after it, or after they had loaded, and by the end of the run at the latest, unless the seat was lost until
    then. The claim makes all of it new."""
    if history.readings is None:
        return
    readings, end_ms = Readings(history.readings), _end_ms(history)
    loaded_ms = {
        line["controller_epoch"]: line["at_ms"]
        for line in history.lines
        if (line["kind"], line.get("target")) == ("controller", "loaded")
    }
    for tenure in known.tenures:
        if tenure.epoch not in loaded_ms:
            continue
        until_ms = end_ms if tenure.until_ms is None else tenure.until_ms
        for change in _changes(history, tenure, readings):
            since_ms = max(change.at_ms, loaded_ms[tenure.epoch], _hidden_until_ms(history, change.path, end_ms))
            heard_ms = min(_shown(change, tenure.session, readings), default=None)
            if heard_ms is not None and heard_ms <= since_ms + READ_AT_ONCE_MS:
                continue
            is_excused = _is_kept_back(history, tenure, change, since_ms)
            due_ms = since_ms + (READ_WITHIN_MS if is_excused else READ_AT_ONCE_MS)
            due_ms = min(due_ms, max(since_ms + READ_AT_REST_MS, end_ms))
            if due_ms <= until_ms and (heard_ms is None or heard_ms > due_ms):
                said = "never" if heard_ms is None else f"{heard_ms - change.at_ms:.0f} ms later"
                text = f"{change.path} ({change.kind}) changed at {change.zxid:#x}"
                yield None, f"{text}, which the controller of epoch {tenure.epoch} read {said}"


def _is_kept_back(history: History, tenure: Tenure, change: Change, since_ms: int) -> bool:
    """Returns whether a watch could not tell of it, or tell in time: its node could not be read once, or any fault was
    in the way. Then a look does, or a process that comes back."""
    until_ms = since_ms + READ_AT_ONCE_MS
    return any(
        (one.kind in HIDING and one.target.partition(" ")[0] == change.path)
        or (
            one.broker_id in (None, tenure.broker_id)
            and one.at_ms - SLACK_MS <= until_ms
            and since_ms <= one.at_ms + one.lasts_ms + history.session_timeout_ms
        )
        for one in history.faults
    )


def _hidden_until_ms(history: History, path: str, end_ms: int) -> int:
    """When it could be read at last; 0 if it always could."""
    healed_ms = min((one.at_ms for one in history.faults if one.kind == HEAL), default=end_ms)
    over_ms = (
        min(one.at_ms + one.lasts_ms, max(healed_ms, one.at_ms))
        for one in history.faults
        if one.kind in HIDING and one.target.partition(" ")[0] == path
    )
    return max(over_ms, default=0)


def _changes(history: History, tenure: Tenure, readings: Readings) -> Iterator[Change]:
    """That this controller has to hear of, the latest first."""
    gone: dict[str, int] = {}
    for commit in reversed(history.commits):
        if tenure.until_zxid is not None and commit.zxid >= tenure.until_zxid:
            continue
        if commit.zxid <= tenure.zxid:
            break
        for write in commit.writes:
            if write.kind == "delete":
                gone[write.path] = commit.zxid
            if write.kind != "check":
                yield from _seen_by(tenure.session, commit, write, gone.get(write.path), readings)
    yield from (Change("data", path, tenure.zxid, tenure.at_ms) for path in _NODES)
    yield from (Change("list", path, tenure.zxid, tenure.at_ms) for path in _LISTS)


def _seen_by(session: int, commit: Commit, write: Write, gone_zxid: int | None, readings: Readings) -> Iterator[Change]:
    """Returns the nodes of it that this session watches, or should."""
    path, parent = write.path, write.path.rpartition("/")[0]
    moment, is_gone = (commit.zxid, commit.at_ms), write.kind == "delete"
    kinds = () if _OF_BROKERS.fullmatch(path) else _KINDS
    armed = {kind for kind in kinds if (session, kind, path) in readings.watched}
    if path in _NODES or _BELOW.fullmatch(path) or armed & {"data", "watch"}:
        yield Change("data", path, *moment, is_gone, gone_zxid)
    elif "stat" in armed:
        yield Change("stat", path, *moment, is_gone, gone_zxid)
    if write.kind != "set" and (parent in _LISTS or (session, "list", parent) in readings.watched):
        yield Change("list", parent, *moment)


def _shown(change: Change, session: int, readings: Readings) -> Iterator[float]:
    """When it was first read, one way or another."""
    ways = [(kind, change.path, change.zxid) for kind in _SHOWN_BY["stat" if change.is_gone else change.kind]]
    if change.gone_zxid is not None:
        ways.append(("list", change.path.rpartition("/")[0], change.gone_zxid))
    for kind, path, zxid in ways:
        yield from (one.at_ms for one in readings.since(session, kind, path, zxid)[:1])


def _end_ms(history: History) -> int:
    return max(history.commits[-1].at_ms, 0 if history.end is None else history.end.at_ms)


RULES: Final[tuple[RunRule, ...]] = tuple(
    value for name, value in sorted(globals().items()) if re.match(r"s\d\d_", name)
)
