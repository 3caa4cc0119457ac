"""From a line's description to what both engines run: a shape, its regular expression and where its slots are.

The expression is one that Python and Java read alike. Slots are columns of a silver row; those that a shape does not
capture are empty. This module compiles; what there is to compile is in `shapes`.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

import msgspec

from sparkjobs.parse.payloads import FRAGMENTS

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
LONG_SLOTS: Final = ("version", "correlation_id", "elapsed_ms", "broker_epoch")
LIST_SLOTS: Final = ("isr", "replicas", "added", "removed")
TEXT_SLOTS: Final = ("topic", "from_state", "to_state", "api", "error", "recovery", "reason")
#: what they capture is not always what the column says
WORD_SLOTS: Final = frozenset({"from_state", "to_state", "recovery", "api", "elapsed_ms", "n_more"})
SLOTS: Final = (*INT_SLOTS, *LONG_SLOTS, *LIST_SLOTS, *TEXT_SLOTS)

_NAMED_GROUP = re.compile(r"\(\?<(\w+)>")
_DIGITS = {**dict.fromkeys(INT_SLOTS, r"\d{1,9}"), **dict.fromkeys(LONG_SLOTS, r"\d{1,18}")}
_LITERAL_START = re.compile(r"[A-Za-z#'_,/ -]*")


class Shape(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What one kind of line says. `constants` are columns that follow from the shape alone."""

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
        """Whether what is captured may be an old name or a number that stands for something."""
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
