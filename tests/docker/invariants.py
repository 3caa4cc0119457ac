"""Invariants of a cluster under any fault, as far as they can be seen from the outside.

During a fault, `watched` asks every broker again and again for the controller, and for its view of each partition.
Afterwards `settle` waits until ZooKeeper and all brokers agree, and then reads every state-change log.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from tests.docker.cluster import Cluster, NoAnswerError, State, until

WATCH_INTERVAL_S: Final = 0.25

Partition = tuple[str, int]


class Watch:
    """Observations: the brokers that claimed to be the controller of an epoch, and leader epochs that fell."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._epochs: dict[tuple[int, Partition], int] = {}
        self.claimed: dict[int, set[int]] = defaultdict(set)
        self.fallen: list[str] = []
        self.answers = 0

    def look(self, broker_id: int) -> None:
        try:
            _, said = self._cluster.ask(broker_id, "/v1/controller", timeout_s=1.0)
            told = self._cluster.told(broker_id)
        except NoAnswerError:
            return  # it is killed, paused or starting: the others are asked
        self.answers += 1
        if said.get("since") is not None:  # only the controller itself knows since when
            self.claimed[said["controller_epoch"]].add(said["broker_id"])
        for partition, state in told.items():
            before = self._epochs.get((broker_id, partition), -1)
            if state.leader_epoch < before:
                self.fallen.append(f"broker {broker_id} was told {partition} {before}, then {state.leader_epoch}")
            self._epochs[broker_id, partition] = state.leader_epoch


@contextmanager
def watched(cluster: Cluster) -> Iterator[Watch]:
    """Watch while this lasts; then settle, and judge all that was seen."""
    watch, over = Watch(cluster), threading.Event()

    def look_at(broker_id: int) -> None:
        while not over.wait(WATCH_INTERVAL_S):
            watch.look(broker_id)

    threads = [threading.Thread(target=look_at, args=(broker_id,)) for broker_id in cluster.broker_ids]
    for thread in threads:
        thread.start()
    try:
        yield watch
        settle(cluster)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert watch.answers > 0
    assert {epoch: ids for epoch, ids in watch.claimed.items() if len(ids) > 1} == {}, "two controllers in one epoch"
    assert watch.fallen == []
    judge_logs(cluster.log_lines())


def settle(cluster: Cluster) -> None:
    """Wait until everything is well; fail with the troubles that remain."""
    troubles: list[str] = ["no broker was asked"]

    def is_settled() -> bool:
        troubles[:] = _troubles_of(cluster)
        return not troubles

    try:
        until(is_settled, "the cluster is whole again")
    except AssertionError as error:
        raise AssertionError(f"{error}: {'; '.join(troubles[:20])}") from None


def _troubles_of(cluster: Cluster) -> list[str]:
    try:
        with cluster.zookeeper() as zk:
            return _troubles_by(zk, cluster)
    except (KazooException, KazooTimeoutError) as error:
        return [f"ZooKeeper: {error!r}"]
    except NoAnswerError as error:
        return [str(error)]


def _troubles_by(zk: KazooClient, cluster: Cluster) -> list[str]:
    """Every partition is led by a live member of its ISR, and every broker's view is ZooKeeper's."""
    live = {int(name) for name in zk.get_children("/brokers/ids")}
    found = [f"broker {broker_id} is not registered" for broker_id in cluster.broker_ids if broker_id not in live]
    try:
        holder = json.loads(zk.get("/controller")[0])["brokerid"]
    except NoNodeError:
        return [*found, "/controller is vacant"]
    epoch = int(zk.get("/controller_epoch")[0])
    states = states_in(zk)
    for partition, state in states.items():
        if state.leader not in live or state.leader not in state.isr:
            found.append(f"{partition} is led by {state.leader}, live are {live}, in sync {state.isr}")
    for broker_id in cluster.broker_ids:
        status, health = cluster.ask(broker_id, "/healthz/cluster")
        if health["status"] != "green":
            found.append(f"broker {broker_id} says {status}, {health}")
        _, said = cluster.ask(broker_id, "/v1/controller")
        if (said["broker_id"], said["controller_epoch"]) != (holder, epoch):
            found.append(f"broker {broker_id} obeys {said}, and {holder} holds epoch {epoch}")
        told = cluster.told(broker_id)
        if told != states:
            different = [one for one in states.keys() | told.keys() if states.get(one) != told.get(one)]
            found.append(f"broker {broker_id} was told otherwise of {sorted(different)[:3]}")
    return found


def states_of(cluster: Cluster) -> dict[Partition, State]:
    """Every state znode, now."""
    with cluster.zookeeper() as zk:
        return states_in(zk)


def counts_on(broker_id: int, cluster: Cluster) -> bool:
    """Whether it leads a partition, or is in an ISR."""
    return any(broker_id == state.leader or broker_id in state.isr for state in states_of(cluster).values())


def is_told_by_zookeeper(cluster: Cluster, broker_ids: Iterable[int]) -> bool:
    """Returns whether the view of those brokers is ZooKeeper's."""
    states = states_of(cluster)
    return all(cluster.told(broker_id) == states for broker_id in broker_ids)


def states_in(zk: KazooClient) -> dict[Partition, State]:
    """Every state znode, but of topics on their way out: these go one by one while they are read."""
    found = {}
    for topic in zk.get_children("/brokers/topics"):
        try:
            found.update(_states_of_topic(zk, topic))
        except NoNodeError:
            if zk.exists(f"/brokers/topics/{topic}") and not zk.exists(f"/admin/delete_topics/{topic}"):
                raise
    return found


def _states_of_topic(zk: KazooClient, topic: str) -> dict[Partition, State]:
    found = {}
    for number in json.loads(zk.get(f"/brokers/topics/{topic}")[0])["partitions"]:
        data, stat = zk.get(f"/brokers/topics/{topic}/partitions/{number}/state")
        state = json.loads(data)
        found[(topic, int(number))] = State(
            state["leader"], state["leader_epoch"], tuple(state["isr"]), stat.version, state["controller_epoch"]
        )
    return found


def judge_logs(lines: list[dict[str, Any]]) -> None:
    """One controller per epoch; along the versions of a state, neither epoch falls, and no version is written twice."""
    controllers: dict[int, set[int]] = defaultdict(set)
    for line in lines:
        if line.get("reason") != "found":  # by a successor, about a state of its predecessor
            controllers[line["controller_epoch"]].add(line["controller_id"])
    several = {epoch: ids for epoch, ids in controllers.items() if epoch >= 0 and len(ids) > 1}
    assert several == {}, [line for line in lines if line["controller_epoch"] in several][:3]

    written: dict[tuple[str, int], dict[int, set[tuple[Any, ...]]]] = defaultdict(lambda: defaultdict(set))
    for line in lines:
        if line["kind"] == "partition" and line.get("version") is not None and line.get("leader_epoch") is not None:
            content = (line["leader_epoch"], line["leader"], tuple(line["isr"]))
            written[line["topic_id"], line["partition"]][line["version"]].add((*content, line["controller_epoch"]))
    assert written, "no partition was ever written down"
    for partition, versions in written.items():
        last = (-1, -1)
        for version, contents in sorted(versions.items()):
            distinct = {one[:3] for one in contents}  # a successor repeats found states
            assert len(distinct) == 1, f"version {version} of {partition} is {contents}"
            first = min(contents, key=lambda one: one[3])
            assert first[0] >= last[0], f"the leader epoch of {partition} falls at version {version}"
            assert first[3] >= last[1], f"the controller epoch of {partition} falls at version {version}"
            last = (first[0], first[3])
