"""`python -m tests.security.hostile [--inputs 1000000] [--seed 1]`: hostile input to everything that parses.

It goes to all the parsers of `parsers.py`, and in requests over a socket to a served broker with its controller in it.
Right are: a value, or the parser's own refusal; over HTTP an answer below 500 (503 and 504 have meanings of their own)
and, where it is a refusal, no change. The log is searched for the secrets meanwhile. A term is given spoiled znodes and
answers, too (`spoiled.py`). It prints a table, and ends with 1 when anything else came. Inputs are drawn from the seed
alone, so a finding can be seen again.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, NoReturn

import structlog

from controller.wire import bodies
from controller.wire.signing import Incarnation
from tests.security import samples
from tests.security.parsers import PARSERS, Parser
from tests.security.roles import OWN, TABLE, Process, a_process, target_of
from tests.security.spoiled import spoil
from tests.security.tally import Tally, hostile
from tests.security.test_secrets import ADMIN, ALL, READER, RPC

#: in requests
SENT: Final = (*samples.ZNODES, *samples.BODIES)
SECRETS: Final = (ADMIN, READER, RPC)
LOGGED: Final = "lines logged"
#: znodes under a term, however many inputs
SPOILED: Final = 4_000
SIGNED: Final = "HTTP, signed by a broker"


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
    """Send requests over sockets. A refused request changes nothing, whatever its sender."""
    is_broker = row == SIGNED
    paths = [key for key in TABLE if not is_broker or key[1].startswith("/rpc/")]
    before = process.state
    for _ in range(count):
        method, path = random.choice(paths)
        target = process.url + target_of(path)
        if random.random() < 0.2 and not is_broker:
            target += ("&" if "?" in target else "?") + hostile(random, b"limit=5&cursor=a&state=online").decode(
                "latin-1"
            ).replace("#", "")
        headers = {"Content-Type": "application/json", **right}
        if path.startswith("/rpc/") and random.random() < 0.5:
            headers |= {name: _header(random) for name in random.sample(HEADERS, 3)}
        body = hostile(random, random.choice(SENT)) if random.random() < 0.9 else random.choice(SENT)
        if is_broker:
            heads = {
                bodies.CONTROLLER_ID: "2",
                bodies.CONTROLLER_EPOCH: "7",
                bodies.EVENT_ID: _header(random).strip() or "7-1",
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
        before, was = process.state, before
        if 400 <= status < 500 and before != was:
            tally.find(row, f"{status} and a change for {method} {target} {body!r}")
        elif status >= 500 and status not in (503, 504):
            tally.find(row, f"{status} for {method} {target} {body!r}")
        elif any(secret.encode() in said for secret in SECRETS):
            tally.find(row, f"a secret in the answer to {method} {target}")
        else:
            tally.count(row, str(status))


HEADERS: Final = (
    bodies.CONTROLLER_ID,
    bodies.CONTROLLER_EPOCH,
    bodies.BROKER_EPOCH,
    bodies.EVENT_ID,
    bodies.SENDER,
    bodies.SIGNATURE,
)


def _header(random: Random) -> str:
    words = ("", "-1", "1", "1 1", "9" * 30, "7-1", "x" * 2_000, "ä", "0x1", "1 1 1", "NaN", "'; --", "\t")
    return random.choice(words)


@contextmanager
def searched(tally: Tally) -> Iterator[None]:
    """No secret is logged meanwhile, by us or by a library."""

    def look(_: object, __: str, said: MutableMapping[str, Any]) -> NoReturn:
        search(str(said))
        raise structlog.DropEvent

    clean = Counter[str]()

    def search(line: str) -> None:
        if any(secret in line for secret in SECRETS):
            tally.find(LOGGED, line)
        else:
            clean["no secret"] += 1

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            search(self.format(record))

    config, handler = structlog.get_config(), Handler()
    structlog.configure(
        processors=[structlog.processors.format_exc_info, look],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
    )
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        structlog.configure(**config)
        tally.rows[LOGGED] = tally.rows.get(LOGGED, Counter()) + clean  # only now: they are no inputs


async def run(inputs: int, seed: int) -> Tally:
    tally, random = Tally(), Random(seed)
    with searched(tally):
        await _run(tally, random, inputs)
    return tally


async def _run(tally: Tally, random: Random, inputs: int) -> None:
    for parser in PARSERS:  # in a thread: some have a loop of their own
        await asyncio.to_thread(parse, tally, random, parser, inputs * 19 // 20 // len(PARSERS))
    left = max(inputs - tally.total, 1)
    with tempfile.TemporaryDirectory() as folder:
        async with a_process(Path(folder), ALL) as process:
            third, admin = left // 3, {"Authorization": f"Bearer {ADMIN}"}
            await ask(tally, random, process, "HTTP, without a token", third, {})
            await ask(tally, random, process, SIGNED, third, {})
            await ask(tally, random, process, "HTTP, as administrator", left - 2 * third, admin)
            for topic in process.node.broker.metadata.topics():  # its metadata can still be shown
                tally.count("topics it was told", "rows" if topic.partitions else "no rows")
            status, _ = await process.ask("GET", "/livez", "none")
            if status != 200:
                tally.find("afterwards", f"/livez says {status}")
    await spoil(tally, random, SPOILED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    started = time.monotonic()
    tally = asyncio.run(run(arguments.inputs, arguments.seed))
    said = [tally.table(), f"seed {arguments.seed}, {time.monotonic() - started:.0f} s", *tally.findings[:20]]
    sys.stdout.write("\n".join(said) + "\n")
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
