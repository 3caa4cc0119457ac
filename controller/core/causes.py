"""Why something was decided: one word of a fixed list, which programs read, and the same in words, for people."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Cause(Enum):
    """The values stand in the state-change log, where they are added to and never renamed."""

    # brokers
    BROKER_GONE = "broker_gone"
    BROKER_JOINED = "broker_joined"
    BROKER_BOUNCED = "broker_bounced"
    BROKER_CHANGED = "broker_changed"
    BROKER_FORGOTTEN = "broker_forgotten"
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    DRAIN = "drain"
    DISK_FAILED = "disk_failed"
    DISK_MENDED = "disk_mended"
    EPOCH_REFUSED = "epoch_refused"
    # topics
    TOPIC_CREATED = "topic_created"
    TOPIC_GROWN = "topic_grown"
    TOPIC_FOUND = "topic_found"
    TOPIC_ID_MISSING = "topic_id_missing"
    TOPIC_DELETED = "topic_deleted"
    TOPIC_GONE = "topic_gone"
    REASSIGNMENT = "reassignment"
    MISPLACED = "misplaced"
    WRITTEN_BACK = "written_back"
    # elections without a broker that comes or goes
    PREFERRED_ELECTION = "preferred_election"
    LEADER_IMBALANCE = "leader_imbalance"
    UNCLEAN_ELECTION = "unclean_election"
    UNCLEAN_ALLOWED = "unclean_allowed"
    # states
    ISR_ASKED = "isr_asked"
    STATE_WRITTEN = "state_written"
    STATE_LOST = "state_lost"
    REPAIRED = "repaired"
    # terms
    TERM_STARTED = "term_started"
    FOUND = "found"

    __hash__ = object.__hash__  # Enum's own is Python, and moves are grouped by cause


class Failure(Enum):
    """Why an election chose no leader. The values stand in the state-change log, as those of `Cause`."""

    NO_REPLICA_ALIVE = "no_replica_alive"
    NOBODY_CAN_LEAD = "nobody_can_lead"
    PREFERRED_CANNOT_LEAD = "preferred_cannot_lead"
    NOT_NEEDED = "not_needed"

    __hash__ = object.__hash__


class Reason(NamedTuple):
    """The cause that is passed on with a decision."""

    cause: Cause
    words: str
