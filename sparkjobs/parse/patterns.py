"""From a line's description to its matcher: a shape, its regular expression and where its slots are.

The expression is one that Python and Java read alike. Slots are columns of a silver row; those that a shape does not
capture are empty. This module compiles; the descriptions are in `shapes`.

Kafka's objects as they are printed in the middle of a line are fragments of patterns. A fragment names its captures
like columns: `(?<leader>-?\\d+)`. `{NAME}` in a pattern stands for a fragment. Versions and patch releases differ in
which parts there are, so parts are optional and no version is asked. A name may occur several times as long as one line
can hold only one of them.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

import msgspec

_INTS = "{INTS}"
_BROKER_STATE = r"BrokerState\(brokerId=\d{1,9}, brokerEpoch=-?\d+\)"
_BROKER_STATES = f"(?:{_INTS}|{_BROKER_STATE}(?:, {_BROKER_STATE})*)"

#: 1.1 and later; 3.2 has a recovery state, 3.3 calls the version partitionEpoch, 3.5 has broker epochs in the ISR
_LEADER_AND_ISR = (
    r"LeaderAndIsr\(leader=(?<leader>-?\d+), leaderEpoch=(?<leader_epoch>-?\d+), "
    rf"isr(?:WithBrokerEpoch)?=(?:List|Vector|ArrayBuffer)?\(?(?<isr>{_BROKER_STATES})\)?, "
    r"(?:leaderRecoveryState=(?<recovery>\w+), )?(?:zkVersion|partitionEpoch)=(?<version>-?\d+)\)"
)
_LEADER_AND_ISR_0_8_1 = r'\{"leader":(?<leader>-?\d+),"leader_epoch":(?<leader_epoch>-?\d+),"isr":\[(?<isr>{INTS})\]\}'
_LEADER_AND_ISR_0_8_0 = (
    r'\{ "ISR":"(?<isr>{INTS})", "leader":"(?<leader>-?\d+)", "leaderEpoch":"(?<leader_epoch>-?\d+)" \}'
)
#: LeaderIsrAndControllerEpoch, all versions; its controller epoch is that of the decision, not of the sender
_STATE_AND_EPOCH = (
    r"\(Leader:(?<leader>-?\d+),ISR:(?<isr>{INTS}),(?:LeaderRecoveryState:(?<recovery>\w+),)?"
    r"LeaderEpoch:(?<leader_epoch>-?\d+),(?:(?:Zk|zk)Version:(?<version>-?\d+),)?"
    r"(?:PartitionEpoch:(?<version>-?\d+),)?ControllerEpoch:-?\d+\)"
)
#: 0.8 to 0.11; its brackets never balanced
_STATE_INFO = (
    r"\(LeaderAndIsrInfo:\(Leader:(?<leader>-?\d+),ISR:(?<isr>{INTS}),LeaderEpoch:(?<leader_epoch>-?\d+),"
    r"ControllerEpoch:-?\d+\),ReplicationFactor:\d+\),AllReplicas:(?<replicas>{INTS})\)"
)
_REQUEST_STATE = (
    r"controllerEpoch=-?\d+, leader=(?<leader>-?\d+), leaderEpoch=(?<leader_epoch>-?\d+), "
    rf"isr=\[?(?<isr>{_INTS})\]?, (?:zkVersion|partitionEpoch)=(?<version>-?\d+), replicas=\[?(?<replicas>{_INTS})\]?"
    rf"(?:, addingReplicas=\[(?<added>{_INTS})\], removingReplicas=\[(?<removed>{_INTS})\])?"
    rf"(?:, offlineReplicas=\[(?<removed>{_INTS})\])?(?:, isNew=\w+)?(?:, leaderRecoveryState=(?<recovery>\d+))?\)"
)
#: its own name of the partition
_NAMED = r"topicName='(?<topic>[\w.-]*)', partitionIndex=(?<partition>\d+), "
_UNNAMED = r"(?:topicName='[^']*', partitionIndex=\d+, )?"
_STRUCT = r"(?:LeaderAndIsr|UpdateMetadata)?PartitionState\("

FRAGMENTS: Final[dict[str, str]] = {
    # a partition is printed as [topic,0] or topic-0, sometimes both in one file
    "T": r"\[?(?<topic>[\w.-]+)[-,](?<partition>\d+)\]?",
    "STATE": f"(?:{_LEADER_AND_ISR}|{_LEADER_AND_ISR_0_8_1}|{_LEADER_AND_ISR_0_8_0})",
    "STATE_AND_EPOCH": _STATE_AND_EPOCH,
    # the fields of a request about a partition, where the line names the partition elsewhere
    "ASKED": f"(?:{_STRUCT}{_UNNAMED}{_REQUEST_STATE}|{_STATE_INFO}|{_STATE_AND_EPOCH})",
    # the same, where it may be named only there
    "ASKED_OF": f"(?:{_STRUCT}(?:{_NAMED})?{_REQUEST_STATE}|{_STATE_INFO}|{_STATE_AND_EPOCH})",
    "BY": r"from controller (?<controller>\d+)(?:,? epoch (?<controller_epoch>-?\d+))?",
    "ID": r"(?:correlation ?[Ii]d:?|correlationId) (?<correlation_id>\d+)",
    "BROKERS": rf"(?:[A-Z]\w*)?[\[(]{_INTS}[\])]",
    "ASSIGNMENT": rf"ReplicaAssignment\(replicas=(?<replicas>{_INTS}), addingReplicas=(?<added>{_INTS}), "
    rf"removingReplicas=(?<removed>{_INTS})\)",
    "LIST": rf"(?:[A-Z]\w*)?[\[(]?(?<replicas>{_INTS})[\])]?",
    # host:port (id: 3 rack: null), Node(3, host, port), id:3,host:h,port:9092, or host:port:3
    "PEER": r"(?:\S* ?\(id: (?<peer_broker>\d+) rack: [^)]*\)|Node\((?<peer_broker>\d+), [^)]*\)|"
    r"id:(?<peer_broker>\d+),host:.*|[^ ,]+:(?<peer_broker>\d+))",
    "FROM_TO": r"from (?<from_state>\w+) to (?<to_state>\w+)",
    # the last: the others are made of it
    "INTS": r"(?:\d{1,9}(?:, ?\d{1,9})*)?",
}


INT_SLOTS: Final = (
    "partition",
    "leader",
    "leader_epoch",
    "peer_broker",
    "controller",
    "controller_epoch",
    "n_partitions",
    "n_more",  # added to n_partitions
)
LONG_SLOTS: Final = ("version", "correlation_id", "elapsed_ms", "broker_epoch", "offset")
LIST_SLOTS: Final = ("isr", "replicas", "added", "removed")
TEXT_SLOTS: Final = ("topic", "topic_id", "from_state", "to_state", "api", "error", "recovery", "reason")
#: slots whose captured text may differ from the column's value
WORD_SLOTS: Final = frozenset({"from_state", "to_state", "recovery", "api", "elapsed_ms", "n_more"})
SLOTS: Final = (*INT_SLOTS, *LONG_SLOTS, *LIST_SLOTS, *TEXT_SLOTS)

_NAMED_GROUP = re.compile(r"\(\?<(\w+)>")
_DIGITS = {**dict.fromkeys(INT_SLOTS, r"\d{1,9}"), **dict.fromkeys(LONG_SLOTS, r"\d{1,18}")}
_LITERAL_START = re.compile(r"[A-Za-z#'_,/ -]*")


class Shape(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The meaning of one kind of line. `constants` are columns that follow from the shape alone."""

    shape_id: str
    event: str
    role: str  # whose duty the line tells of: controller, broker, server
    anchor: str  # how the body begins, in small letters, leading digits as one #
    mark: str  # words that must be in it besides, where the beginning is shared
    pattern: str  # of the body, from start to end; groups are numbered
    groups: dict[str, tuple[int, ...]]  # slot -> its groups, of which at most one takes part
    constants: dict[str, str]
    is_on_message: bool  # the pattern is of the whole message: its prefix says which partition

    @cached_property
    def places(self) -> tuple[tuple[str, bool, bool, int, tuple[int, ...]], ...]:
        """Per slot: is it a number, is it a list, its first group from 0, its other groups."""
        return tuple(
            (slot, slot in _DIGITS, slot in LIST_SLOTS, first - 1, tuple(group - 1 for group in others))
            for slot, (first, *others) in self.groups.items()
        )

    @cached_property
    def fixed(self) -> dict[str, str]:
        """The columns that need no line."""
        return {"role": self.role, "event": self.event, "shape_id": self.shape_id, **self.constants}

    @cached_property
    def has_words(self) -> bool:
        """Returns whether a captured text may be an old name, or a number in place of a name."""
        return not WORD_SLOTS.isdisjoint(self.groups) or self.event in ("request_ignored", "response_received")

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.ASCII | re.DOTALL)


def shape_for(
    shape_id: str,
    event: str,
    role: str,
    pattern: str,
    *,
    anchor: str | None = None,
    mark: str = "",
    on_message: bool = False,
    **constants: str,
) -> Shape:
    """A pattern's first letter is found in either case: it changed with 1.0."""
    for name, fragment in FRAGMENTS.items():
        pattern = pattern.replace(f"{{{name}}}", fragment)
    literal = _LITERAL_START.match(pattern)
    if anchor is None:
        assert literal is not None
        anchor = literal[0] if literal.end() == len(pattern) or pattern[literal.end()] not in "?*" else literal[0][:-1]
    assert anchor, f"{shape_id}: say how the body begins"
    if pattern[0] == "#":
        pattern = r"\d+" + pattern[1:]
    elif pattern[0].isalpha() and not on_message:
        pattern = f"[{pattern[0].upper()}{pattern[0].lower()}]{pattern[1:]}"
    groups: dict[str, tuple[int, ...]] = {}
    parts = _NAMED_GROUP.split(pattern)
    text = parts[0]
    for number, (slot, rest) in enumerate(zip(parts[1::2], parts[2::2], strict=True), start=1):
        assert slot in SLOTS, f"{shape_id}: {slot} is no slot"
        groups[slot] = (*groups.get(slot, ()), number)
        start = rest.partition(")")
        text += "(" + start[0].replace(r"\d+", _DIGITS.get(slot, r"\d+")) + start[1] + start[2]
    return Shape(
        shape_id=shape_id,
        event=event,
        role=role,
        anchor=anchor.lower(),
        mark=mark,
        pattern=text,
        groups=groups,
        constants=constants,
        is_on_message=on_message,
    )
