"""One round: a cluster of its own under load, then with faults, then healed. It returns the history, and whether the
round counts.

It draws nothing and judges by the checker's rules alone. Its evidence lies in its folder, and the caller decides
whether to keep the folder.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from brokerstub.lab.ports import free_port
from brokerstub.lab.settings import LabError
from brokerstub.lab.zookeeper import Ensemble, ZooKeeperError, ZooKeeperServer
from controller.core.events import CreateTopicAsked, UndrainAsked
from controller.security.secrets import API_TOKEN, RPC_SECRET
from tests.faults.chaos.clients import PARTITIONS, TOPIC, ForeignClients
from tests.faults.chaos.foreign import Program
from tests.faults.chaos.harms import HARMS, fall
from tests.faults.chaos.player import RealPlayer
from tests.faults.chaos.pulse import Pulse
from tests.faults.chaos.rest import end_of, unrest
from tests.faults.chaos.schedule import WARM_S, Act, Schedule
from tests.faults.chaos.target_cluster import Field, elapse
from tests.faults.chaos.tool import log_in
from tests.faults.chaos.traces import leaks_in, unaudited
from tests.faults.checker.evidence import ended_in, history_of
from tests.faults.checker.history import End, History, HistoryError, json_of
from tests.faults.checker.verdict import Finding, judge
from tests.faults.hostile import create_big, hidden_topics
from tests.faults.operations import PROBE
from tests.integration.cluster import Cluster, cluster_for
from tests.integration.judging import bugs_in

REST_S: Final = 90.0
WARM_MAX_S: Final = 30.0
#: a wide limit, because other work on the machine leaves chaos little time
SERVES_WITHIN_MS: Final = 120_000
REST_POLL_S: Final = 0.2
#: long enough for every process to notice the last fault
NOTICED_S: Final = 5.0
UNDRAIN_EVERY_S: Final = 2.0
SUPERVISE_EVERY_S: Final = 1.0
OUT_OF_REACH: Final = "no ZooKeeper session within"
#: a round counts with so many successful operations before the first fault, and when so many of its faults hit
WARM_OK_MIN: Final = 5
HITS_MIN: Final = 0.6
SECRETS: Final = {API_TOKEN: "chaos-token-" + "x" * 32, RPC_SECRET: "chaos-secret-" + "y" * 32}
PROPERTIES: Final = {"replica.lag.time.max.ms": "3000", "leader.imbalance.check.interval.seconds": "10"}


class Outcome(NamedTuple):
    """The outcome of a round. `void` has the reasons why it does not count."""

    schedule: Schedule
    findings: list[Finding]
    history: History
    hits: Counter[str]
    misses: Counter[str]
    void: list[str]
    took_s: float
    rested_ms: int | None


class Round:
    """Plays a schedule on a cluster."""

    def __init__(
        self, schedule: Schedule, cluster: Cluster, servers: list[ZooKeeperServer], programs: Sequence[Program] = ()
    ) -> None:
        self.schedule = schedule
        self.programs = programs
        self.field = Field(cluster, servers)
        self.player = RealPlayer(self.field)
        self.pulse = Pulse(self.field)
        self.hits: Counter[str] = Counter()
        self.misses: Counter[str] = Counter()
        self.bugs: list[str] = []
        self.warm_ok = 0
        self.rested_ms: int | None = None
        self.foreign: ForeignClients | None = None

    async def play(self) -> End:
        """Load, fire, healing, rest."""
        if self.schedule.has_records:
            self.foreign = await self._foreign_clients()
        try:
            return await self._play()
        finally:
            if self.foreign is not None:
                self.foreign.stop()

    async def _play(self) -> End:
        async with asyncio.TaskGroup() as group:
            if self.foreign is not None:
                self.foreign.start(group)
            looking = group.create_task(self.field.look())
            feeling = group.create_task(self.pulse.watch())
            supervising = group.create_task(self._supervise())
            if self.schedule.has_big_topic and (big := create_big(self.player, Random(self.schedule.seed))):
                await self.player.ask(*big, draw=Random(self.schedule.seed))
            clients = [group.create_task(self.player.play(asks)) for asks in self.schedule.asks]
            await self._warm_up()
            async with asyncio.TaskGroup() as fire:
                begun = time.monotonic()
                for act in self.schedule.acts:
                    await elapse(begun + act.at_s - time.monotonic())
                    fire.create_task(self._inflict(act))
            for client in clients:
                client.cancel()
            await self._heal()
            if self.foreign is not None:
                await self.foreign.finish()
            self.rested_ms = await self._rest()
            if self.rested_ms is not None and not await self._is_probed():
                self.rested_ms = None
            if self.foreign is not None:
                await self.foreign.read_all()
            await self.player.finish()
            looking.cancel()
            feeling.cancel()
            supervising.cancel()
        end = await end_of(self.field, self.rested_ms, REST_S)
        end.lags = self.pulse.lags
        return end

    async def _foreign_clients(self) -> ForeignClients:
        """Start the clients on a topic of their own. Operations ask nothing of that topic but elections."""
        factor = min(3, self.schedule.brokers)
        await self.player.ask("create-topic", TOPIC, CreateTopicAsked(TOPIC, PARTITIONS, factor), draw=Random(0))
        data, _ = await self.field.cluster.zookeeper("get", f"/brokers/topics/{TOPIC}")
        servers = self.field.cluster.settings.bootstrap_servers
        assert servers is not None, "its brokers keep records"
        return ForeignClients(servers, json_of(data)["topic_id"], self.programs)

    async def _warm_up(self) -> None:
        """Load alone, for a while and until enough of it was done."""
        begun = time.monotonic()
        while (passed_s := time.monotonic() - begun) < WARM_S or self.warm_ok < WARM_OK_MIN:
            if passed_s > WARM_MAX_S:
                return
            await asyncio.sleep(0.1)
            self.warm_ok = sum(one.outcome == "ok" for one in self.player.calls)

    async def _inflict(self, act: Act) -> None:
        fallen = await fall(self.field, act.harm, act.role, Random(act.seed))
        injury = None if fallen is None else fallen.injury
        has_hit = False
        if injury is not None:
            await elapse(act.length_s)
            with suppress(LabError, ZooKeeperError, TimeoutError, ProcessLookupError, FileNotFoundError):
                await injury.heal()
                has_hit = injury.has_hit()
            self.field.note("healed", f"{injury.kind} {injury.target}")
        if fallen is not None and fallen.number is not None:
            has_missed = injury is not None and not has_hit and not HARMS[act.harm].falls_on_all
            self.field.settle(fallen.number, has_missed=has_missed)
        (self.hits if has_hit else self.misses)[act.harm] += 1

    async def _heal(self) -> None:
        self.field.note("heal", "everything")
        await self.field.restore()

    async def _supervise(self) -> None:
        """Restart brokers that ended by themselves, as systemd does, until cancelled. A broker may only end so at its
        start, when no ZooKeeper can be reached."""
        while True:
            for broker in self.field.cluster.brokers.values():
                if broker.state == "exited":
                    said = broker.row.last_lines[-3:]
                    if not any(OUT_OF_REACH in line for line in said):
                        self.bugs.append(f"broker {broker.broker_id} ended by itself: {said}")
                    with suppress(LabError):  # another task started it first
                        await broker.start()
            await asyncio.sleep(SUPERVISE_EVERY_S)

    async def _rest(self) -> int | None:
        """Milliseconds until everything is as it should be; None when it never is."""
        begun = time.monotonic()
        trouble = ["nobody has looked"]
        while trouble and time.monotonic() - begun < REST_S:
            drained = any(one.startswith("/klamm/draining") for one in trouble)
            for broker_id in self.field.broker_ids if drained else ():
                await self.player.ask("undrain", str(broker_id), UndrainAsked(broker_id), draw=Random(broker_id))
            trouble = [one async for one in unrest(self.field)]
            await asyncio.sleep(UNDRAIN_EVERY_S if drained else REST_POLL_S)
        self.bugs += [f"no rest: {one}" for one in trouble[:5]]
        return None if trouble else round((time.monotonic() - begun) * 1000)

    async def _is_probed(self) -> bool:
        """Send a request once every process has noticed the last fault. Returns whether the cluster comes to rest
        again."""
        await elapse(NOTICED_S)
        await self._rest()
        await self.player.ask(*PROBE, draw=Random(self.schedule.seed))
        return await self._rest() is not None

    def history(self, end: End) -> History:
        cluster = self.field.cluster
        faults = self.field.faults
        known = history_of(cluster.servers, cluster.chroot, [one.folder for one in cluster.brokers.values()],
                           faults=faults, calls=self.player.calls, end=end)  # fmt: skip
        known.rpcs = list(cluster.witness.completed(known.rpcs))
        known.heard, known.broker_requests = cluster.witness.told, cluster.witness.broker_requests
        known.sees, known.unfollowed = "ways", cluster.witness.unfollowed
        known.ended_ms = {epoch: ms for one in cluster.brokers.values()
                          for epoch, ms in ended_in(one.folder / "broker.log").items()}  # fmt: skip
        known.starved = self.pulse.starved
        known.hidden_topics = hidden_topics(faults)
        known.lost_lines = any(HARMS[one.kind].loses_lines for one in faults if one.kind in HARMS)
        known.bugs = [*self.bugs, *self.player.bugs, *_bugs_of(cluster), *_traces_of(cluster, known)]
        if self.foreign is not None:
            self.foreign.take_copies(list(cluster.brokers.values()))
            known.records = self.foreign.evidence
            known.bugs += [*self.foreign.bugs, *self.foreign.unread()]
        return known


def why_void(warm_ok: int, *, hits: Counter[str], misses: Counter[str]) -> list[str]:
    """Why a round proves nothing, if it does not."""
    why = []
    if warm_ok < WARM_OK_MIN:
        why.append(f"{warm_ok} operations were done before the first fault, and {WARM_OK_MIN} are needed")
    fell = hits.total() + misses.total()
    if hits.total() < HITS_MIN * fell:
        why.append(f"{hits.total()} of {fell} faults hit, {dict(misses)} missed")
    return why


def _bugs_of(cluster: Cluster) -> Iterator[str]:
    for broker in cluster.brokers.values():
        yield from bugs_in(broker.folder)
        yield from (f"broker {broker.broker_id} parked {line['reason']}" for line in broker.lines()
                    if line.get("target") == "parked")  # fmt: skip


def _traces_of(cluster: Cluster, history: History) -> Iterator[str]:
    brokers = cluster.brokers.values()
    yield from leaks_in(SECRETS.values(), [broker.folder for broker in brokers], history.commits)
    yield from unaudited(history.calls, [line for broker in brokers for line in broker.log("mutation.audited")])


@asynccontextmanager
async def _zookeeper(servers: int, folder: Path) -> AsyncIterator[list[ZooKeeperServer]]:
    if servers == 1:
        server = ZooKeeperServer(folder, free_port(), fsync=False, heap_mb=256, enforces_quotas=True)
        await server.start(SERVES_WITHIN_MS)
        try:
            yield [server]
        finally:
            await server.stop()
    else:
        ensemble = Ensemble(folder, servers, fsync=False, enforces_quotas=True)
        await ensemble.start(SERVES_WITHIN_MS)
        try:
            yield ensemble.servers
        finally:
            await ensemble.stop()


@contextmanager
def _secrets(schedule: Schedule) -> Iterator[None]:
    """In the environment, from which brokers inherit them and clients take theirs."""
    try:
        os.environ.update(SECRETS if schedule.has_secrets else {})
        yield
    finally:
        for name in SECRETS if schedule.has_secrets else ():
            del os.environ[name]


async def play(schedule: Schedule, folder: Path, programs: Sequence[Program] = ()) -> Outcome:
    """A cluster from nothing to its verdict. `programs`: producers beside librdkafka, where brokers keep records."""
    with _secrets(schedule):
        return await _play(schedule, folder, programs)


async def _play(schedule: Schedule, folder: Path, programs: Sequence[Program]) -> Outcome:
    begun = time.monotonic()
    async with _zookeeper(schedule.servers, folder / "zookeeper") as servers:
        properties = {**PROPERTIES, "auto.leader.rebalance.enable": str(schedule.balances).lower()}
        shape = {"brokers": schedule.brokers, "keeps_records": schedule.has_records}
        cluster = cluster_for(servers, folder, properties=properties, **shape)
        try:
            await cluster.open()
            await cluster.start()
            played = Round(schedule, cluster, servers, programs)
            if schedule.is_hostile:
                await log_in(played.field)
            end = await played.play()
        finally:
            await cluster.close()
        history = played.history(end)
    try:
        findings = judge(history)
    except HistoryError as error:
        findings = [Finding("evidence", None, str(error))]
    void = why_void(played.warm_ok, hits=played.hits, misses=played.misses)
    took_s = time.monotonic() - begun
    return Outcome(schedule, findings, history, played.hits, played.misses, void, took_s, played.rested_ms)
