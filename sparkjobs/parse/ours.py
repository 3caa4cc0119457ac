"""Our own state-change log: a JSON object per line, to the same row as Kafka's lines. Pure.

Fields may be added to the log and are passed over here; one that is missing is None. Our first logs had no causes:
there the words of the reason are looked up, here and nowhere else.
"""

from __future__ import annotations

import re
from math import inf
from typing import Annotated, Any, Final

import msgspec

#: numbers that Spark's columns hold; a line with others is none
_Int = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
_Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class OurLine(msgspec.Struct, frozen=True, gc=False):
    """The fields that are read of a line; a test compares them with the lines that the controller writes."""

    at_ms: _Long
    kind: str
    controller_id: _Int | None = None
    controller_epoch: _Int | None = None
    event_id: str | None = None
    topic: str | None = None
    partition: _Int | None = None
    broker_id: _Int | None = None
    source: str | None = None
    target: str | None = None
    reason: str | None = None
    leader: _Int | None = None
    leader_epoch: _Int | None = None
    isr: tuple[_Int, ...] | None = None
    version: _Long | None = None
    zxid: _Long | None = None
    topic_id: str | None = None
    broker_epoch: _Long | None = None
    took_ms: float | None = None
    error_code: _Int | None = None
    cause: str | None = None
    unclean: bool | None = None
    records: _Long | None = None
    records_lost: _Long | None = None
    records_epoch: _Int | None = None
    offset: _Long | None = None
    machine: str | None = None
    partitions: dict[str, str] | None = None
    count: _Int | None = None
    part: _Int | None = None


#: events that a broker writes of itself; all other lines are a controller's
BROKERS_KINDS: Final = ("rpc", "transition", "truncation")
#: the event of a line by its kind
EVENT_OF: Final = {
    "partition": "partition_changed",
    "replica": "replica_changed",
    "broker": "broker_changed",
    "topic": "topic_changed",
    "controller": "controller_reported",
    "rpc": "request_done",
    "move": "states_moved",
    "truncation": "records_truncated",
}
REASSIGNMENT_OF: Final = {"running": "reassignment_started", "done": "reassignment_done"}
APIS: Final = {
    "leader-and-isr": "LeaderAndIsr",
    "update-metadata": "UpdateMetadata",
    "stop-replica": "StopReplica",
}
#: how the reasons of lines without a cause begin
CAUSES: Final = (
    ("found", "found"),
    ("term started", "term_started"),
    ("brokers gone", "broker_gone"),
    ("registration gone", "broker_gone"),
    ("session gone", "broker_gone"),
    ("brokers bounced", "broker_bounced"),
    ("bounced", "broker_bounced"),
    ("brokers joined", "broker_joined"),
    ("joined", "broker_joined"),
    ("registration changed", "broker_changed"),
    ("brokers changed", "broker_changed"),
    ("log directory", "disk_failed"),
    ("partition created", "topic_created"),
    ("preferred election asked", "preferred_election"),
    ("leader imbalance", "leader_imbalance"),
    ("unclean election asked", "unclean_election"),
    ("unclean election was allowed", "unclean_allowed"),
    ("shuts down", "controlled_shutdown"),
    ("by hand", "drain"),
    ("reassign", "reassignment"),
    ("written by somebody else", "state_written"),
    ("state znode is gone", "state_lost"),
    ("repaired", "repaired"),
)
#: the same where the reason begins with its subject: broker 3 shuts down
_WITHIN: Final = re.compile(r"(?:broker|leader) \d+ (shuts down|drains|asked|refused leader epoch)", re.ASCII)
CAUSES_WITHIN: Final = {
    "shuts down": "controlled_shutdown",
    "drains": "drain",
    "asked": "isr_asked",
    "refused leader epoch": "epoch_refused",
}
#: partitions as a line about moves names them, and how many it can name
_RANGE: Final = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)
PARTITIONS_IN_A_LINE: Final = 2_000_000
_DECODER = msgspec.json.Decoder(OurLine)


def cause_in(reason: str) -> str | None:
    """Returns the cause that these words of an old line stand for."""
    within = _WITHIN.match(reason)
    if within is not None:
        return CAUSES_WITHIN[within[1]]
    return next((cause for words, cause in CAUSES if reason.startswith(words)), None)


def row_of_ours(text: str, file_broker: int | None) -> dict[str, Any] | None:
    """Returns the columns, with `at_ms`; None for a line of another kind."""
    try:
        line = _DECODER.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if line.partitions and not 0 < sum(map(_named_by, line.partitions.values())) <= PARTITIONS_IN_A_LINE:
        return None
    is_rpc, is_brokers = line.kind == "rpc", line.kind in BROKERS_KINDS
    event = EVENT_OF.get(line.kind, "other")
    if line.kind == "reassignment":
        event = REASSIGNMENT_OF.get(line.target or "", "reassignment_step")
    cause, unclean = line.cause, line.unclean
    if cause is None and line.reason is not None:
        cause, unclean = cause_in(line.reason), unclean or "unclean" in line.reason or None
    return {
        "at_ms": line.at_ms,
        "broker": line.broker_id
        if is_brokers and line.broker_id is not None
        else _first(line.controller_id, file_broker),
        "role": "broker" if is_brokers else "controller",
        "event": event,
        "shape_id": f"klamm.{line.kind}" if event != "other" else "klamm.other",
        "controller": line.controller_id,
        "controller_epoch": line.controller_epoch,
        "cause_id": line.event_id,
        "topic": line.topic,
        "partition": line.partition,
        "peer_broker": None if is_brokers else line.broker_id,
        "from_state": line.source,
        "to_state": line.target,
        "reason": line.reason,
        "cause": cause,
        "unclean": unclean,
        "leader": line.leader,
        "leader_epoch": line.leader_epoch,
        "isr": line.isr or None,
        "version": line.version,
        "zxid": line.zxid,
        "topic_id": line.topic_id,
        "broker_epoch": line.broker_epoch,
        "elapsed_ms": line.took_ms,
        "api": APIS.get((line.reason or "").partition(":")[0]) if is_rpc else None,
        "error": str(line.error_code) if line.error_code else None,
        "machine": line.machine,
        "partitions": tuple(f"{topic} {said}" for topic, said in (line.partitions or {}).items()) or None,
        "part": line.part,
        "offset": line.offset,
        "records": line.records,
        "records_lost": line.records_lost,
        "records_epoch": line.records_epoch,
    }


def _named_by(ranges: str) -> float:
    """Returns how many partitions `0-4,7` names; more than there can be where it names none."""
    count = 0
    for part in ranges.split(","):
        found = _RANGE.fullmatch(part)
        if found is None or int(found[2] or found[1]) < int(found[1]):
            return inf
        count += int(found[2] or found[1]) - int(found[1]) + 1
    return count


def _first(one: int | None, other: int | None) -> int | None:
    return other if one is None else one
