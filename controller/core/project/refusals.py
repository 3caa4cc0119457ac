"""Writes that ZooKeeper refuses: their description and a remedy, in words for people.

A refusal concerns one znode, and the change that wanted it written: its *target* names both. The rest of the step is
told and goes on. The shell keeps the time (`controller/loop/retries.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from controller.core.changes.cluster import WriteRefused

#: ours, where ZooKeeper has no code: the request is over its limit and never leaves
TOO_LARGE: Final = 0
NO_NODE, NO_AUTH, BAD_VERSION, NODE_EXISTS, NOT_EMPTY = -101, -102, -103, -110, -111
NO_CHILDREN_FOR_EPHEMERALS, INVALID_ACL, QUOTA_EXCEEDED, THROTTLED = -108, -114, -125, -127

#: ZooKeeper's own names
NAMES: Final = {
    TOO_LARGE: "TooLarge",
    -1: "SystemError",
    -2: "RuntimeInconsistency",
    -3: "DataInconsistency",
    -4: "ConnectionLoss",
    -5: "MarshallingError",
    -6: "Unimplemented",
    -7: "OperationTimeout",
    -8: "BadArguments",
    NO_NODE: "NoNode",
    NO_AUTH: "NoAuth",
    BAD_VERSION: "BadVersion",
    NO_CHILDREN_FOR_EPHEMERALS: "NoChildrenForEphemerals",
    NODE_EXISTS: "NodeExists",
    NOT_EMPTY: "NotEmpty",
    -112: "SessionExpired",
    INVALID_ACL: "InvalidACL",
    -115: "AuthFailed",
    -118: "SessionMoved",
    -119: "NotReadOnly",
    QUOTA_EXCEEDED: "QuotaExceeded",
    THROTTLED: "ThrottledOp",
}
#: so many foreign children are named
CHILDREN_NAMED: Final = 3


def name_of(code: int) -> str:
    """ZooKeeper's word for a code; the number alone for one that is newer than this list."""
    return NAMES.get(code, f"code {code}")


def trouble_of(refused: WriteRefused) -> str:
    """Returns the refused write, in one clause."""
    name = name_of(refused.code)
    if refused.code == TOO_LARGE:
        return f"ZooKeeper takes no request as large as the one for {refused.path}: {name}"
    return f"ZooKeeper refuses to {refused.verb} {refused.path}: {name}"


def remedy_for(refused: WriteRefused) -> str:
    """Returns the remedy, in one sentence."""
    path, parent = refused.path, refused.path.rpartition("/")[0] or "/"
    match refused.code:
        case -102 if refused.verb in ("read", "write"):
            return f"Give the controller's user permission to {refused.verb} it (setAcl)."
        case -102:
            return f"Give the controller's user permission to {refused.verb} below {parent} (setAcl)."
        case -111:
            more = len(refused.below) - CHILDREN_NAMED
            named = [f"{path}/{name}" for name in refused.below[:CHILDREN_NAMED]]
            rest = f" and {more} more" if more > 0 else ""
            return f"Remove its children that are not Kafka's: {', '.join(named) or f'see ls {path}'}{rest}."
        case -101:
            return f"Something that it needs is missing: see whether {parent} is there."
        case -103 | -110:
            return "Another client keeps changing it: find out which, and stop it."
        case -114:
            return "The controller has no user whose ACL it could set: set KLAMM_ZOOKEEPER_AUTH."
        case -108:
            return f"Nothing can be below an ephemeral znode: remove {parent}."
        case -125:
            return "Raise the quota (setquota), or remove nodes that are not needed."
        case -127:
            return "Nothing has to be done if it passes: ZooKeeper has more to do than it can."
        case 0:
            return "Raise jute.maxbuffer on the servers of ZooKeeper, or make the topic smaller."
        case _:
            return "The log of ZooKeeper's servers may say more."


def sentence_for(refused: WriteRefused) -> str:
    """Returns all of it, for health: the write, since when, the remedy, and when it is tried again."""
    pause_s = max(1, round(refused.retry_ms / 1_000))
    when = "the caller was told, and may ask again" if refused.is_asked else f"it is tried again every {pause_s} s"
    return f"{trouble_of(refused)}. {remedy_for(refused)} So since {_clock(refused.since_ms)} UTC; {when}"


def _clock(at_ms: int) -> str:
    """Returns the time of day."""
    seconds = at_ms // 1_000 % 86_400
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
