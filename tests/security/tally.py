"""Hostile input is good input, spoiled at random; a tally of the inputs and their results."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

#: the bytes that a mutation puts in
MORSELS: Final = (
    *(b"null", b"true", b"-1", b"-0.0", b"1e999", b"NaN", b'""', b"[]", b"{}", b"[[[[", b"}}", b'"\\ud800"', b"\x00"),
    *(b"9" * 400, b"9223372036854775808", b"-9223372036854775809", b"2147483648", b"\xff\xfe", b"\xed\xa0\x80", b","),
    *(
        b"[" * 3_000,
        b'{"a":' * 3_000,
        b'"' + b"x" * 5_000 + b'"',
        b"../../etc/passwd",
        b"%00",
        b"\r\nX: y",
        b"\xef\xbb\xbf",
    ),
)


class Tally:
    """The inputs, their results, and the findings."""

    def __init__(self) -> None:
        self.rows: dict[str, Counter[str]] = {}
        self.findings: list[str] = []

    def count(self, row: str, outcome: str) -> None:
        self.rows.setdefault(row, Counter())[outcome] += 1

    def find(self, row: str, what: str) -> None:
        self.count(row, "FOUND")
        self.findings.append(f"{row}: {what}"[:2_000])

    @property
    def total(self) -> int:
        return sum(row.total() for row in self.rows.values())

    def table(self) -> str:
        lines = [f"| {'Input':<24} | {'Tried':>9} | Outcomes |", f"|{'-' * 26}|{'-' * 10}:|----------|"]
        for name, row in self.rows.items():
            outcomes = ", ".join(f"{outcome} {count:,}" for outcome, count in sorted(row.items()))
            lines.append(f"| {name:<24} | {row.total():>9,} | {outcomes} |")
        return "\n".join([*lines, f"| {'all':<24} | {self.total:>9,} | {len(self.findings)} findings |"])


def hostile(random: Random, sample: bytes) -> bytes:
    """The sample, spoiled in one to four places."""
    data = sample
    for _ in range(random.randint(1, 4)):
        at, to = sorted((random.randint(0, len(data)), random.randint(0, len(data))))
        match random.randrange(6):
            case 0:
                data = data[:at] + random.choice(MORSELS) + data[at:]
            case 1:
                data = data[:at] + random.choice(MORSELS) + data[min(to, at + 8) :]
            case 2:
                data = data[:at] + random.randbytes(random.randint(1, 8)) + data[at + 1 :]
            case 3:
                data = data[:at] + data[at : at + 40] + data[at:]
            case 4:
                data = data[:at]
            case _:
                data = data.replace(random.choice((b"1", b"0", b'"', b"[", b":")), random.choice(MORSELS), 1)
    return data[:100_000]
