"""`python -m tests.security.hostile [--inputs 1000000] [--seed 1]`: hostile input to everything that parses.

It goes to all the parsers of `parsers.py`, and in requests over a socket to a served broker with its controller in it.
What is right: a value, or the parser's own refusal; over HTTP an answer below 500 (503 and 504 have
meanings of their own) and, where nobody has shown a right, no change. It prints a table, and ends with 1 when anything
else came. Inputs are drawn from the seed alone, so a finding can be seen again.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Final

import structlog

from controller import wire
from controller.signing import Incarnation
from tests.security import samples
from tests.security.parsers import PARSERS, Parser
from tests.security.roles import OWN, PARTS, TABLE, Process, a_process
from tests.security.test_secrets import ADMIN, ALL, READER, RPC

#: what a mutation puts in
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
#: in requests
SENT: Final = (*samples.ZNODES, *samples.BODIES)
SIGNED: Final = "HTTP, signed by a broker"


class Tally:
    """What was tried, what came of it, and what should not have."""

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


def parse(tally: Tally, random: Random, parser: Parser, count: int) -> None:
    """Only the parser's own refusal may come out of it."""
    for _ in range(count):
        data = hostile(random, random.choice(parser.samples))
        try:
            parser.parse(data)
            tally.count(parser.group, "a value")
        except parser.refusals:
            tally.count(parser.group, "refused")
        except BaseException as error:
            tally.find(parser.group, f"{parser.name}: {error!r} for {data!r}")
            if not isinstance(error, Exception):
                raise


async def ask(tally: Tally, random: Random, process: Process, row: str, count: int, right: Mapping[str, str]) -> None:
    """Requests over sockets. Without a right nothing may change, whatever is said."""
    is_broker = row == SIGNED
    paths = [key for key in TABLE if key[1] != "/v1/events" and (not is_broker or key[1].startswith("/rpc/"))]
    asked, told = len(process.door.asked), len(process.node.lines)
    for _ in range(count):
        method, path = random.choice(paths)
        target = process.url + path.format(**PARTS)
        if random.random() < 0.2 and not is_broker:
            target += "?" + hostile(random, b"limit=5&cursor=a&state=online").decode("latin-1").replace("#", "")
        headers = {"Content-Type": "application/json", **right}
        if path.startswith("/rpc/") and random.random() < 0.5:
            headers |= {name: _header(random) for name in random.sample(HEADERS, 3)}
        body = hostile(random, random.choice(SENT)) if random.random() < 0.9 else random.choice(SENT)
        if is_broker:
            heads = {
                wire.CONTROLLER_ID: "2",
                wire.CONTROLLER_EPOCH: "7",
                wire.EVENT_ID: _header(random).strip() or "7-1",
            }
            follower = Incarnation(2, 200)
            heads = process.signer.headers_for(method, target, body, sender=follower, receiver=OWN, more=heads)
            headers = heads
        try:
            async with process.client.request(method, target, headers=headers, data=body) as response:
                said = await response.read()
                status = response.status
        except (ValueError, UnicodeError):
            tally.count(row, "no request")
            continue
        if status >= 500 and status not in (503, 504):
            tally.find(row, f"{status} for {method} {target} {body!r}")
        elif any(secret.encode() in said for secret in (ADMIN, READER, RPC)):
            tally.find(row, f"a secret in the answer to {method} {target}")
        else:
            tally.count(row, str(status))
    if not right and not is_broker and (len(process.door.asked), len(process.node.lines)) != (asked, told):
        tally.find(row, "something changed though nobody had the right")


HEADERS: Final = (
    wire.CONTROLLER_ID,
    wire.CONTROLLER_EPOCH,
    wire.BROKER_EPOCH,
    wire.EVENT_ID,
    wire.SENDER,
    wire.SIGNATURE,
)


def _header(random: Random) -> str:
    words = ("", "-1", "1", "1 1", "9" * 30, "7-1", "x" * 2_000, "ä", "0x1", "1 1 1", "NaN", "'; --", "\t")
    return random.choice(words)


async def run(inputs: int, seed: int) -> Tally:
    tally, random = Tally(), Random(seed)
    for parser in PARSERS:  # in a thread: some have a loop of their own
        await asyncio.to_thread(parse, tally, random, parser, inputs * 19 // 20 // len(PARSERS))
    left = max(inputs - tally.total, 1)
    with tempfile.TemporaryDirectory() as folder:
        async with a_process(Path(folder), ALL) as process:
            third, admin = left // 3, {"Authorization": f"Bearer {ADMIN}"}
            await ask(tally, random, process, "HTTP, without a token", third, {})
            await ask(tally, random, process, SIGNED, third, {})
            await ask(tally, random, process, "HTTP, as administrator", left - 2 * third, admin)
            for topic in process.node.broker.metadata.topics():  # what it was told can still be shown
                tally.count("topics it was told", "rows" if topic.partitions else "no rows")
            status, _ = await process.ask("GET", "/livez", "none")
            if status != 200:
                tally.find("afterwards", f"/livez says {status}")
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    started = time.monotonic()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    tally = asyncio.run(run(arguments.inputs, arguments.seed))
    said = [tally.table(), f"seed {arguments.seed}, {time.monotonic() - started:.0f} s", *tally.findings[:20]]
    sys.stdout.write("\n".join(said) + "\n")
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
