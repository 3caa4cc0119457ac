"""`make what-if CASES=20 SEED=`: what-if against the truth, on real clusters of both kinds.

A cluster of four brokers, Kafka 3.9 in ZooKeeper mode or 4.3 in KRaft mode, goes through drawn cases. Each makes
topics, ends and starts some brokers, asks `klamm what-if kill` of the record, of the live ZooKeeper and of the output
of `kafka-topics --describe`, and does exactly that: SIGKILL, one broker after the other, or SIGTERM in the order that
was called safe. Leaders, ISRs and eligible replicas are then those that were predicted for this order of deaths, and
all other partitions stand as before. A case is left to the next as it ends, so the dead are of all ages.

The truth is read without the code under test: from the state znodes by kazoo, and by Kafka's own tool.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol

import click
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from brokerstub.lab.kafka import KafkaBroker, jars, tool
from brokerstub.lab.ports import free_port
from brokerstub.lab.zookeeper import ZooKeeperServer
from sparkjobs.commands.cli import top
from sparkjobs.history.as_of import moment_of
from tests.real_brokers import kraft
from tests.real_brokers.cluster import JARS, TOOLS
from tests.waiting import until

Kind = Literal["zookeeper", "kraft"]
KINDS: Final[tuple[Kind, ...]] = ("zookeeper", "kraft")
IDS: Final = (1, 2, 3, 4)
NOBODY: Final = -1
FOLDER: Final = Path("var/what-if")
#: a dead broker's session, and then the time that a leader gives a silent follower, on a busy machine
SETTLES_S: Final = 120
#: as often a case may be disturbed: a leader lost a follower that lives
TRIES: Final = 3
Name = tuple[str, int]


class Stand(NamedTuple):
    """How a partition stands. A leader that is dead is nobody."""

    leader: int
    isr: frozenset[int]
    elr: frozenset[int]
    replicas: tuple[int, ...]


class Case(NamedTuple):
    """What is drawn for one case; brokers are named as they come, of those that live then."""

    topics: Mapping[str, tuple[list[list[int]], dict[str, str]]]
    act: Literal["kill", "stop"]
    order: list[int]


class Told(NamedTuple):
    """The end of a case."""

    case: Case
    partitions: int
    concerned: int
    offline: int
    of_several: int  # partitions with an outcome for each order
    refused: int
    differences: list[str]


class Subject(Protocol):
    """A real cluster."""

    kind: Kind
    jars: Path
    directory: Path

    def alive(self) -> set[int]: ...
    def address_of(self, broker: int) -> str: ...
    async def start(self, broker: int) -> None: ...
    async def end(self, broker: int, act: Literal["kill", "stop"]) -> None: ...
    def sources(self) -> dict[str, list[str]]: ...
    async def seen(self) -> dict[Name, Stand]:
        """What to wait for."""
        ...

    async def truth(self) -> dict[Name, Stand]:
        """What to judge by."""
        ...

    def is_noticed(self, broker: int) -> bool: ...


class ZooKeeperMode:
    """Kafka 3.9.1 on a real ZooKeeper."""

    kind: Kind = "zookeeper"

    def __init__(self, directory: Path, server: ZooKeeperServer, kazoo: KazooClient, found: Path) -> None:
        self.directory, self.jars = directory, found
        self.server, self.kazoo = server, kazoo
        self.brokers = {
            one: KafkaBroker(
                *(one, free_port(), f"{server.address}/kafka", directory / f"broker-{one}", found),
                properties={"replica.lag.time.max.ms": "10000"},
            )
            for one in IDS
        }

    def alive(self) -> set[int]:
        return {one for one, broker in self.brokers.items() if broker.pid is not None}

    def address_of(self, broker: int) -> str:
        return self.brokers[broker].address

    async def start(self, broker: int) -> None:
        await self.brokers[broker].start()
        await until(lambda: not self.is_noticed(broker), f"broker {broker} is registered", within_s=SETTLES_S)

    async def end(self, broker: int, act: Literal["kill", "stop"]) -> None:
        await (self.brokers[broker].kill() if act == "kill" else self.brokers[broker].stop())

    def sources(self) -> dict[str, list[str]]:
        return {
            "record": [str(self.server.data_dir), "--chroot", "/kafka"],
            "live": [f"zookeeper://{self.server.address}/kafka"],
        }

    async def seen(self) -> dict[Name, Stand]:
        return await self.truth()

    async def truth(self) -> dict[Name, Stand]:
        return await asyncio.to_thread(self._states)

    def _states(self) -> dict[Name, Stand]:
        found: dict[Name, Stand] = {}
        alive = {int(one) for one in self.kazoo.get_children("/kafka/brokers/ids")}
        for topic in self.kazoo.get_children("/kafka/brokers/topics"):
            assigned = json.loads(self.kazoo.get(f"/kafka/brokers/topics/{topic}")[0])["partitions"]
            for number, replicas in assigned.items():
                path = f"/kafka/brokers/topics/{topic}/partitions/{number}/state"
                if self.kazoo.exists(path) is None:
                    continue
                said = json.loads(self.kazoo.get(path)[0])
                leader = said["leader"] if said["leader"] in alive else NOBODY
                found[topic, int(number)] = Stand(leader, frozenset(said["isr"]), frozenset(), tuple(replicas))
        return found

    def is_noticed(self, broker: int) -> bool:
        return self.kazoo.exists(f"/kafka/brokers/ids/{broker}") is None


class KraftMode:
    """Kafka 4.3 in KRaft mode, with a controller of its own."""

    kind: Kind = "kraft"

    def __init__(self, directory: Path, cluster: kraft.KraftCluster) -> None:
        self.directory, self.jars = directory, cluster.jars
        self.cluster = cluster

    def alive(self) -> set[int]:
        return {one for one, broker in self.cluster.brokers.items() if broker.pid is not None}

    def address_of(self, broker: int) -> str:
        return self.cluster.brokers[broker].address

    async def start(self, broker: int) -> None:
        await self.cluster.brokers[broker].start()
        await until(lambda: not self.is_noticed(broker), f"broker {broker} is unfenced", within_s=SETTLES_S)

    async def end(self, broker: int, act: Literal["kill", "stop"]) -> None:
        node = self.cluster.brokers[broker]
        await (node.kill() if act == "kill" else node.stop())

    def sources(self) -> dict[str, list[str]]:
        return {"record": [str(self.cluster.record)]}

    async def seen(self) -> dict[Name, Stand]:
        """By our reader: Kafka's tool takes seconds."""
        partitions = moment_of(self.sources()["record"], None).cluster.partitions
        return {
            name: Stand(one.leader, frozenset(one.isr), frozenset(one.elr), one.replicas)
            for name, one in partitions.items()
        }

    async def truth(self) -> dict[Name, Stand]:
        return states_in(await described(self))

    def is_noticed(self, broker: int) -> bool:
        known = moment_of(self.sources()["record"], None).cluster.brokers.get(broker)
        return known is None or not known.is_serving


_LINE: Final = re.compile(
    r"^\s*Topic: (?P<topic>\S+)\s+Partition: (?P<number>\d+)\s+Leader: (?P<leader>\S+)\s+Replicas: (?P<replicas>\S*)\s+"
    r"Isr: ?(?P<isr>[\d,]*)(?:\s+Elr: ?(?P<elr>[\d,]*|N/A))?",
    re.MULTILINE,
)


def states_in(text: str) -> dict[Name, Stand]:
    """The lines of `kafka-topics --describe`."""

    def numbers(words: str | None) -> list[int]:
        return [int(one) for one in (words or "").split(",") if one.isdecimal()]

    return {
        (one["topic"], int(one["number"])): Stand(
            NOBODY if one["leader"] == "none" else int(one["leader"]),
            frozenset(numbers(one["isr"])),
            frozenset(numbers(one["elr"])),
            tuple(numbers(one["replicas"])),
        )
        for one in _LINE.finditer(text)
    }


async def described(subject: Subject) -> str:
    """Returns the output of Kafka's own tool, which asks the brokers that live."""
    servers = ",".join(subject.address_of(one) for one in sorted(subject.alive()))
    words = ("--bootstrap-server", servers, "--describe")
    code, said = await tool(subject.jars, subject.directory, f"{TOOLS}.TopicCommand", *words, within_s=SETTLES_S)
    assert code == 0, said
    return said


@asynccontextmanager
async def a_subject(kind: Kind, directory: Path, *, features: Mapping[str, int] = {}) -> AsyncIterator[Subject]:
    directory.mkdir(parents=True, exist_ok=True)
    if kind == "kraft":
        found = await kraft.jars(JARS)
        async with kraft.a_kraft_cluster(directory, found, IDS, features=features) as cluster:
            subject = KraftMode(directory, cluster)
            await until(lambda: not any(subject.is_noticed(one) for one in IDS), "all are unfenced", within_s=SETTLES_S)
            yield subject
        return
    server = ZooKeeperServer(directory / "zookeeper", free_port(), fsync=False)
    await server.start()
    kazoo = KazooClient(hosts=server.address)
    await asyncio.to_thread(kazoo.start)
    mode = ZooKeeperMode(directory, server, kazoo, await jars(JARS))
    try:
        for broker in mode.brokers.values():
            await broker.launch()
        for broker in mode.brokers.values():
            await broker.listening(SETTLES_S)
        yield mode
    finally:
        for broker in mode.brokers.values():
            await broker.kill()
        await asyncio.to_thread(kazoo.stop)
        kazoo.close()
        await server.stop()


class Player:
    """Draws cases on one cluster and plays them."""

    def __init__(self, subject: Subject, seed: int) -> None:
        self.subject = subject
        self.seed = seed
        self.unclean: set[str] = set()
        self.number = 0

    async def next(self) -> Told:
        """The next case that nothing disturbed."""
        for _ in range(TRIES):
            told = await self._played()
            if told is not None:
                return told
        raise AssertionError(f"{TRIES} cases were disturbed: leaders lost followers that live")

    async def _played(self) -> Told | None:
        self.number += 1
        chance = random.Random(f"{self.seed}.{self.number}")
        subject = self.subject
        dead = sorted(set(IDS) - subject.alive())
        chance.shuffle(dead)
        least = chance.choice((3, 3, 4))
        for broker in dead[: max(0, least - len(subject.alive()))]:
            await subject.start(broker)
        await self._settled(is_whole)
        topics = self._topics(chance)
        await asyncio.to_thread(self._create, topics)
        await self._settled(
            lambda states, alive: {one[0] for one in states} >= topics.keys() and is_whole(states, alive)
        )
        await self._shaken(chance)
        alive = sorted(subject.alive())
        act: Literal["kill", "stop"] = chance.choice(("kill", "kill", "kill", "stop"))
        order = chance.sample(alive, chance.randint(1, len(alive) - 1))
        return await self._judged(Case(topics, act, order))

    def _topics(self, chance: random.Random) -> dict[str, tuple[list[list[int]], dict[str, str]]]:
        alive = sorted(self.subject.alive())
        found = {}
        for letter in "ab":
            count = chance.choice((1, 2, 2, 3, 3, len(alive)))
            replicas = [chance.sample(alive, min(count, len(alive))) for _ in range(3)]
            settings = {"min.insync.replicas": str(chance.randint(1, 3))}
            if chance.random() < 0.3:
                settings["unclean.leader.election.enable"] = "true"
            found[f"t{self.number}{letter}"] = replicas, settings
        return found

    def _create(self, topics: Mapping[str, tuple[list[list[int]], dict[str, str]]]) -> None:
        servers = ",".join(self.subject.address_of(one) for one in sorted(self.subject.alive()))
        client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        asked = [
            NewTopic(name, len(rows), replica_assignment=rows, config=settings)
            for name, (rows, settings) in topics.items()
        ]
        for name, future in client.create_topics(asked, operation_timeout=60, request_timeout=90).items():
            future.result()
            if "unclean.leader.election.enable" in topics[name][1]:
                self.unclean.add(name)

    async def _shaken(self, chance: random.Random) -> None:
        """Some brokers end beforehand, and some of these come back: leaders are not the first of their assignment."""
        if len(self.subject.alive()) < 3 or chance.random() < 0.4:
            return
        broker = chance.choice(sorted(self.subject.alive()))
        await self._end(broker, chance.choice(("kill", "stop")))
        if chance.random() < 0.4:
            await self.subject.start(broker)
            await self._settled(is_whole)

    async def _end(self, broker: int, act: Literal["kill", "stop"]) -> None:
        await self.subject.end(broker, act)
        noticed = f"the controller notices that broker {broker} is gone"
        await until(lambda: self.subject.is_noticed(broker), noticed, within_s=SETTLES_S, poll_s=0.2)
        await self._settled()

    async def _settled(
        self,
        is_so: Callable[[Mapping[Name, Stand], set[int]], bool] = lambda states, alive: True,
        *,
        by_truth: bool = False,
    ) -> dict[Name, Stand]:
        alive = self.subject.alive()
        found: dict[Name, Stand] = {}

        async def is_settled() -> bool:
            nonlocal found
            found = await (self.subject.truth() if by_truth else self.subject.seen())
            return is_decided(found, alive, self.unclean) and is_so(found, alive)

        try:
            await until(is_settled, "the cluster settles", within_s=SETTLES_S, poll_s=0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}; alive: {sorted(alive)}; {found}") from None
        return found

    async def _judged(self, case: Case) -> Told | None:
        subject = self.subject
        sources = subject.sources()
        path = subject.directory / f"described-{self.number}.txt"
        path.write_text(text := await described(subject))
        before = states_in(text) if subject.kind == "kraft" else await subject.truth()
        sources["described"] = [str(path)]
        answers = {name: await asyncio.to_thread(asked, case.order, words) for name, words in sources.items()}
        order = case.order
        if case.act == "stop":
            order = [one for one in answers["record"]["safe_order"] if one in case.order]
        differences = []
        for place, broker in enumerate(order, 1):
            await self._end(broker, case.act)
            if case.act == "stop":
                after = await self._settled()
                lost = [name for name, one in after.items() if one.leader == NOBODY and before[name].leader != NOBODY]
                differences += [f"{order[:place]} were to stop safely: {lost} have no leader"] if lost else []
        after = await self._settled(by_truth=True)
        alive = subject.alive()
        for name, answer in answers.items():
            if case.act == "stop":
                continue
            differences += [f"{name}: {one}" for one in unlike(answer, case.order, before, after)]
        if differences and any(before[name].isr & alive - after[name].isr for name in before):
            return None
        answer = answers["record"]
        several = [one for key in ("offline", "moved", "shrunk") for one in answer[key] if len(one["outcomes"]) > 1]
        refused = sum(len(one["refused"]) for one in answers.values())
        counts = (answer["concerned"], len(answer["offline"]), len(several), refused)
        return Told(case, len(before), *counts, differences)


def is_decided(states: Mapping[Name, Stand], alive: Collection[int], unclean: Collection[str]) -> bool:
    """Whether nobody who is dead is in an ISR that a living leader can write, and no possible leader is left out."""
    living = set(alive)
    for name, one in states.items():
        if one.leader in living:
            is_pending = not one.isr <= living
        else:
            possible = set(one.replicas) if name[0] in unclean else one.isr | one.elr
            is_pending = one.leader != NOBODY or bool(possible & living)
        if is_pending:
            return False
    return True


def is_whole(states: Mapping[Name, Stand], alive: Collection[int]) -> bool:
    """Whether each living replica of a partition with a leader is in sync."""
    return all(one.leader == NOBODY or set(one.replicas) & set(alive) <= one.isr for one in states.values())


def asked(brokers: Sequence[int], words: Sequence[str]) -> Any:
    """The answer of `klamm what-if kill`."""
    numbers = [str(one) for one in brokers]
    result = CliRunner().invoke(top, ["what-if", "kill", *numbers, *words, "--at", "end", "-o", "json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def unlike(
    answer: Mapping[str, Any], order: Sequence[int], before: Mapping[Name, Stand], after: Mapping[Name, Stand]
) -> list[str]:
    """Where the cluster stands otherwise than was predicted for this order of deaths."""
    expected: dict[str, tuple[int, frozenset[int], frozenset[int]]] = {
        f"{name[0]}-{name[1]}": (one.leader, one.isr, one.elr) for name, one in before.items()
    }
    for one in (each for key in ("shrunk", "moved", "offline") for each in answer[key]):
        state = outcome_for(one["outcomes"], order)["state"]
        expected[one["partition"]] = state["leader"], frozenset(state["isr"]), frozenset(state["elr"])
    found = {f"{name[0]}-{name[1]}": (one.leader, one.isr, one.elr) for name, one in after.items()}
    untold = {one["partition"] for one in answer["refused"]}
    return [
        f"{name}: predicted {expected.get(name)}, was {found.get(name)}"
        for name in sorted(found.keys() | expected.keys())
        if name not in untold and found.get(name) != expected.get(name)
    ]


def outcome_for(outcomes: Sequence[Any], order: Sequence[int]) -> Any:
    """The only one that names this order, or the only one."""
    if len(outcomes) == 1:
        return outcomes[0]
    (found,) = (one for one in outcomes for each in one["orders"] if each == [it for it in order if it in each])
    return found


async def played(kind: Kind, cases: int, seed: int, features: Mapping[str, int]) -> bool:
    directory = FOLDER / kind
    shutil.rmtree(directory, ignore_errors=True)
    is_right = True
    async with a_subject(kind, directory.resolve(), features=features) as subject:
        player = Player(subject, seed)
        for number in range(1, cases + 1):
            began_s = time.monotonic()
            told = await player.next()
            is_right &= not told.differences
            took_s = time.monotonic() - began_s
            row = f"{kind} {seed}.{player.number} ({number}): {line_of(told)} {took_s:.0f} s"
            click.echo("\n    ".join([row, *told.differences]))
    return is_right


def line_of(told: Told) -> str:
    """For people."""
    deed = "killed" if told.case.act == "kill" else "asked to stop"
    counts = f"of {told.partitions} partitions {told.concerned} concerned, {told.offline} without a leader, "
    counts += f"{told.of_several} by the order, {told.refused} not told"
    end = "as predicted" if not told.differences else f"{len(told.differences)} OTHERWISE"
    return f"{deed} {told.case.order}; {counts}: {end};"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=KINDS, action="append", help="default: both")
    parser.add_argument("--feature", action="append", default=[], metavar="NAME=LEVEL", help="of KRaft")
    given = parser.parse_args()
    features = {name: int(level) for name, _, level in (one.partition("=") for one in given.feature)}
    results = [asyncio.run(played(kind, given.cases, given.seed, features)) for kind in given.kind or KINDS]
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
