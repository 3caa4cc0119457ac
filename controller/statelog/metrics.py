"""Counters and timers of the controller's work since the process began, for Prometheus.

There is one `Meters` for each process: it outlives terms and sessions, so counters never fall back. No decision ever
reads one, and counting never fails. A number that can be read off the present state is no counter: `api/metrics.py`.

`Timings` says how long an operation took lately, as quantiles, like Kafka's histograms and timers. It keeps the newest
thousand values, as many as Kafka's reservoirs hold, and of older ones only their number and sum.
"""

from __future__ import annotations

import time
from collections import Counter as Counted
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics

from controller.core.belief.cluster import Cluster
from controller.core.belief.kept_states import Move as Moved
from controller.core.changes.cluster import Committed, StateDecided
from controller.core.elections import is_unclean
from controller.core.project.state_counts import Move
from controller.zookeeper.port import SessionState

KEPT: Final = 1_028
#: those that jmx_exporter exposes
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class Timings:
    """In milliseconds. Adding a value costs next to nothing; quantiles are computed when a reader asks."""

    __slots__ = ("_newest_ms", "count", "sum_ms")

    def __init__(self) -> None:
        self._newest_ms: deque[float] = deque(maxlen=KEPT)
        self.count = 0
        self.sum_ms = 0.0

    def add(self, took_ms: float) -> None:
        self.count += 1
        self.sum_ms += took_ms
        self._newest_ms.append(took_ms)

    def quantiles(self) -> Mapping[float, float]:
        """Returns of each the least value that so large a part of the newest does not exceed; all 0 while there is
        none."""
        ordered = sorted(self._newest_ms) or [0.0]
        return {one: ordered[min(len(ordered) - 1, int(one * len(ordered)))] for one in QUANTILES}


# in the plain text format these would double the families
disable_created_metrics()  # type: ignore[no-untyped-call]

#: Kafka's ControllerState while an event is handled; events of which Kafka knows nothing are its Idle
IDLE: Final = 0
CONTROLLER_STATES: Final = {
    "ProducerIdsAsked": 0,
    "ProducerIdsSeen": 0,
    "TermStarted": 1,
    "BrokersSeen": 2,
    "TopicsSeen": 3,
    "CreateTopicAsked": 3,
    "TopicsDescribed": 3,
    "GrowTopicAsked": 3,
    "DeletionsSeen": 4,
    "DeleteTopicAsked": 4,
    "StopReplicaAnswered": 4,
    "ReassignAsked": 5,
    "ReassignNodeSeen": 5,
    "ReassignmentsDue": 5,
    "TimePassed": 6,
    "ElectAsked": 7,
    "ElectionNodeSeen": 7,
    "DrainAsked": 8,
    "UndrainAsked": 8,
    "ForgetBrokerAsked": 8,
    "AlterPartitionAsked": 9,
    "StatesSeen": 9,
    "LeaderAndIsrAnswered": 10,
    "RefusalsAnswered": 10,
    "LogDirsSeen": 11,
    "ConfigsSeen": 14,
    "ConfigAsked": 14,
}
#: Kafka's timer of each of its states: `LeaderElectionRateAndTimeMs` and its like, as jmx_exporter spells them
TIMERS: Final = {
    1: "controllerchange",
    2: "leaderelection",
    3: "topicchange",
    4: "topicdeletion",
    5: "partitionreassignment",
    6: "autoleaderbalance",
    7: "manualleaderbalance",
    8: "controlledshutdown",
    9: "isrchange",
    10: "leaderandisrresponsereceived",
    11: "logdirchange",
    12: "controllershutdown",
    13: "uncleanleaderelectionenable",
    14: "topicuncleanleaderelectionenable",
    15: "listpartitionreassignment",
    16: "updatemetadataresponsereceived",
    17: "updatefeatures",
}
_SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30)
_WRITES: Final = (1, 2, 5, 10, 50, 100, 250, 500)


class Meters:
    """Counters and histograms in a registry of their own. To be changed from the event loop's thread only."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        self.controller_state = IDLE
        #: handling events, by Kafka's number of their kind
        self.handled = {number: Timings() for number in TIMERS}
        #: how long the oldest thing in the inbox had waited when its turn came; `turn_wait_seconds` is the same
        self.queued = Timings()
        self.zookeeper_answers = Timings()
        #: of partitions and replicas, since the process began
        self.moves: Counted[Move] = Counted()
        stats, replicas = "kafka_controller_controllerstats_", "kafka_server_replicamanager_"
        self.unclean_elections = counter(stats + "uncleanleaderelections", "Leaders elected here that were not in sync")
        self.leader_elections = counter("klamm_leader_elections", "Partitions that got another leader here")
        granted = "at their leaders' request, counted by the controller that granted it"
        self.isr_shrinks = counter(replicas + "isrshrinks", f"ISRs made smaller {granted}")
        self.isr_expands = counter(replicas + "isrexpands", f"ISRs made larger {granted}")
        listener = "kafka_server_sessionexpirelistener_zookeeper"
        self.sessions_expired = counter(listener + "expires", "Sessions with ZooKeeper lost")
        self.disconnects = counter(listener + "disconnects", "Connections to ZooKeeper lost")
        self.reconnects = counter(listener + "syncconnects", "Connections to ZooKeeper regained")
        self.transactions = counter("klamm_transactions", "Transactions answered by ZooKeeper")
        self.conflicts = counter("klamm_conflicts", "Transactions refused: a znode was not as believed")
        self.transaction_writes = histogram("klamm_transaction_writes", "Writes in a transaction", buckets=_WRITES)
        self.event_seconds = histogram(
            "klamm_event_duration_seconds",
            "From an event's decision until all of it stood",
            labelnames=["event"],
            buckets=_SECONDS,
        )
        self.request_wait_seconds = histogram(
            "klamm_request_wait_seconds", "How long a request waited in the inbox for its turn", buckets=_SECONDS
        )
        self.turn_wait_seconds = histogram(
            "klamm_turn_wait_seconds", "How long the oldest of each turn had waited in the inbox", buckets=_SECONDS
        )
        self.loop_lag_seconds = histogram(
            "klamm_event_loop_lag_seconds", "How late the event loop was to wake a sleeper", buckets=_SECONDS
        )

    @contextmanager
    def handling(self, event: object) -> Iterator[None]:
        """Around the handling of one event."""
        name = type(event).__name__
        self.controller_state = CONTROLLER_STATES.get(name, IDLE)
        started = time.perf_counter()
        try:
            yield
        finally:
            took_s = time.perf_counter() - started
            self.event_seconds.labels(name).observe(took_s)
            if self.controller_state in self.handled:
                self.handled[self.controller_state].add(took_s * 1_000)
            self.controller_state = IDLE

    def session_changed(self, state: SessionState) -> None:
        match state:
            case SessionState.SUSPENDED:
                self.disconnects.inc()
            case SessionState.CONNECTED:
                self.reconnects.inc()
            case SessionState.LOST:
                self.sessions_expired.inc()

    def total(self, counter: Counter) -> int:
        """Returns the value of a counter without labels."""
        return int(next(iter(counter.collect())).samples[0].value)

    def turn_taken(self, waited_s: float) -> None:
        self.queued.add(waited_s * 1_000)
        self.turn_wait_seconds.observe(waited_s)

    def request_taken(self, waited_s: float) -> None:
        self.request_wait_seconds.observe(waited_s)

    def transaction_answered(self, writes: int, *, is_conflict: bool) -> None:
        self.transactions.inc()
        self.transaction_writes.observe(writes)
        if is_conflict:
            self.conflicts.inc()

    def moved(self, moves: Iterable[Moved]) -> None:
        """Which moves it made."""
        for one in moves:
            self.moves[one.source, one.target] += one.count

    def committed(self, cluster: Cluster, committed: Sequence[Committed]) -> None:
        """Count a step that stands, before it is believed: belief still has the values from before."""
        elected = unclean = shrunk = expanded = 0
        for one in committed:
            change = one.change
            if type(change) is not StateDecided:
                continue
            before, after = cluster.topics[change.topic].partitions[change.partition].state, change.state
            if before is None:
                continue
            elected += before.leader != after.leader >= 0
            unclean += is_unclean(before, after)
            if change.by_leader:
                shrunk += len(after.isr) < len(before.isr)
                expanded += len(after.isr) > len(before.isr)
        for counter, count in (
            (self.leader_elections, elected),
            (self.unclean_elections, unclean),
            (self.isr_shrinks, shrunk),
            (self.isr_expands, expanded),
        ):
            if count:
                counter.inc(count)
