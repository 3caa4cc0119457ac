"""One simulated run: from its seed to its findings and the hash of its trace."""

from __future__ import annotations

import asyncio
import gc
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import structlog

from controller.core.states import PARTITION_MOVES, REPLICA_MOVES
from tests.core.rows import judging
from tests.faults.checker.evidence import TERM_OVER
from tests.faults.checker.history import End, History
from tests.faults.checker.verdict import Finding, judge
from tests.faults.operations import PROBE
from tests.faults.simulate.clients import Clients
from tests.faults.simulate.cluster import SimCluster
from tests.faults.simulate.loop import StuckError, VirtualLoop
from tests.faults.simulate.player import Player, pause
from tests.faults.simulate.rest import come_to_rest, unrest
from tests.faults.simulate.schedule import play_beside_a_hostile_tool, play_schedule

#: virtual seconds: D14, with the waits of every back-off on the way
REST_S = 60.0
FIRST_S = 30.0
NOTICED_S = 6.0
#: of schedules that are drawn, so many are played by brokers that keep records
RECORDS_SHARE: Final = 1 / 2
#: the log events of processes that are reported as bugs
_BUGS = ("term.failed",)

Play = Callable[[SimCluster, str], Awaitable[None]]


#: these have faults, all of which are drawn
DRAWN: Final[tuple[Play, ...]] = (play_schedule, play_beside_a_hostile_tool)
_LEGAL: Final = {(source.value, target.value) for source, target in (*PARTITION_MOVES, *REPLICA_MOVES)}


class Outcome(NamedTuple):
    """The outcome of a run."""

    seed: str
    findings: list[Finding]
    history: History
    trace: str
    virtual_s: float


def run(
    seed: str,
    play: Play = play_schedule,
    *,
    brokers: int | None = None,
    balances: bool | None = None,
    records: bool | None = None,
) -> Outcome:
    """Play in a new cluster until it has come to rest, and judge. Options that are not given are drawn."""
    draw = Random(f"{seed} shape")
    count, is_balanced, keeps_records = draw.randint(3, 4), draw.random() < 0.3, draw.random() < RECORDS_SHARE
    count = brokers or count
    is_balanced, keeps_records = _said(balances, is_balanced), _said(records, keeps_records)
    loop = VirtualLoop()
    loop.set_exception_handler(lambda *_: None)
    logging = structlog.get_config()
    # in memory if possible: a disk's fsync would be most of the time
    root = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=root) as folder:
        asyncio.set_event_loop(loop)
        cluster: SimCluster | None = None
        try:
            cluster = _cluster_in(
                loop, seed, Path(folder), brokers=count, balances=is_balanced, keeps_records=keeps_records
            )
            with judging() as rows:
                end = loop.run_until_complete(_play(cluster, seed, play))
            cluster.bugs += [f"in no row of the tables: {one}" for one in rows.outside[:5]]
            history, trace = cluster.history(end), cluster.trace_hash()
            outcome = Outcome(seed, judge(history), history, trace, loop.time())
        finally:
            if cluster is not None:  # also when the play failed: its tasks would fail the next test
                loop.run_until_complete(cluster.bury())
            structlog.configure(**logging)
            asyncio.set_event_loop(None)
            loop.close()
    gc.unfreeze()
    return outcome


def _said(said: bool | None, drawn: bool) -> bool:
    return drawn if said is None else said


def _cluster_in(loop: VirtualLoop, seed: str, folder: Path, **shape: Any) -> SimCluster:
    async def make() -> SimCluster:
        return SimCluster(loop, seed, folder, **shape)

    cluster: SimCluster = loop.run_until_complete(make())

    def remember(logger: object, method: str, event: dict[str, Any]) -> Any:
        if event.get("event") in TERM_OVER:
            cluster.ended_ms[event["controller_epoch"]] = cluster.zookeeper.now_ms
        if event.get("event") in _BUGS:
            trace = structlog.processors.format_exc_info(logger, method, dict(event)).get("exception", "")
            cluster.bugs.append(f"{event['event']}: {event.get('trouble', '')} {trace[-1500:]}")
        raise structlog.DropEvent

    structlog.configure(
        processors=[remember],
        wrapper_class=structlog.make_filtering_bound_logger(30),
        cache_logger_on_first_use=False,
    )
    return cluster


async def _is_probed(cluster: SimCluster, seed: str) -> bool:
    """Send a request once every process has noticed the last fault. Returns whether the cluster comes to rest again."""
    await pause(cluster, NOTICED_S)
    await come_to_rest(cluster, REST_S)
    await Player(cluster, seed).ask(*PROBE)
    return await come_to_rest(cluster, REST_S) is not None


async def _play(cluster: SimCluster, seed: str, play: Play) -> End:
    for broker_id in cluster.broker_ids:
        cluster.start(broker_id)
    clients = None if cluster.records is None else Clients(cluster.records, seed, parts_logs=play in DRAWN)
    try:
        await come_to_rest(cluster, FIRST_S)
        if clients is not None:
            clients.start()
        await play(cluster, seed)
        if clients is not None:
            await clients.finish()
        rested_ms = await come_to_rest(cluster, REST_S)
        if rested_ms is not None and not await _is_probed(cluster, seed):
            rested_ms = None
    except StuckError:
        rested_ms = None
    if rested_ms is None:
        cluster.bugs += [f"no rest: {one}" for one in unrest(cluster)][:5]
    cluster.bugs += [f"parked: {one.reason}" for one in cluster.lines if one.target == "parked"]
    moves = [(one.source or "", one.target or "") for one in cluster.lines if one.kind == "move"]
    cluster.bugs += [f"no table has the move from {source} to {target}" for source, target in set(moves) - _LEGAL]
    if cluster.records is not None:
        cluster.records.take_copies()
    views = {i: cluster.view_of(m) for i, m in cluster.members.items() if m.broker is not None}
    allowed_ms, now_ms = round(REST_S * 1000), cluster.zookeeper.now_ms
    return End(views, cluster.active_ids, cluster.strays(), rested_ms, allowed_ms, cluster.lags, at_ms=now_ms)
