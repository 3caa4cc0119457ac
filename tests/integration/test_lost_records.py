"""Brokers name the records that an unclean election lost, and sign their messages to each other about it."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from brokerstub.lab.pytest_plugin import KlammCluster
from controller.wire.client import HttpClient
from sparkjobs.input.files import Zones, find_logs, survey
from sparkjobs.rules.truncations import records_lost
from tests.spark.plain import answers_for
from tests.spark.reading import ingest
from tests.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.long]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KlammCluster]:
    monkeypatch.setenv("KLAMM_RPC_SECRET", "a-secret-of-all-brokers-of-the-lab")
    cluster = KlammCluster(tmp_path / "var", brokers=3)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.end()


async def log_of(url: str, topic: str) -> dict[str, Any] | None:
    """None: the broker that is asked was not told of the topic yet."""
    client = HttpClient()
    try:
        status, body = await client.get(f"{url}/v1/partitions/{topic}/0/log", {}, int(DEADLINE_S * 1_000))
    finally:
        await client.close()
    return dict(json.loads(body)) if status == 200 else None


async def answered(url: str, topic: str) -> dict[str, Any]:
    """When each broker answers for itself."""

    async def asked() -> dict[str, Any] | None:
        logs = await log_of(url, topic)
        return None if logs is None or any(one["why"] for one in logs["replicas"]) else logs

    return dict(await until(asked, "each broker says how far its log is"))


def answers_of(paths: list[Path]) -> dict[str, Any]:
    """The answers of the report."""
    events = ingest(survey(find_logs([str(path) for path in paths]), "ours", Zones())).events
    return dict(answers_for(events))


def test_what_an_unclean_election_lost_is_told_by_brokers_and_report(cluster: KlammCluster, tmp_path: Path) -> None:
    topic, is_over = cluster.topic(), threading.Event()
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 2})

    def write() -> None:
        while not is_over.is_set():
            producer.produce(topic, b"value")
            producer.poll(0.05)
        producer.flush(DEADLINE_S)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        trouble = cluster.trouble("unclean-election", topic, 0, for_ms=6_000)
    finally:
        is_over.set()
        writing.join()
    lost = re.search(r"\((\d+) committed records are lost\)", trouble.told)
    gone = [(int(one), int(other)) for one, other in re.findall(r"offsets (\d+) to (\d+)", trouble.told)]
    logs = asyncio.run(answered(cluster.url, topic))
    assert logs["kept"]
    assert logs["records_lost"] >= (int(lost[1]) if lost else 0), trouble.told
    its = [(one["start"], one["end"] - 1) for one in logs["truncations"] if one["broker_id"] == trouble.broker]
    # a machine that is busy enough has no record written to the leader that is alone
    assert its[: len(gone)] == gone, trouble.told
    assert all(0 <= one["high_watermark"] <= one["log_end"] for one in logs["replicas"])
    said = answers_of(sorted((tmp_path / "var").glob("broker-*/state-change.log")))
    reported = [(one.broker, one.from_offset, one.to_offset + 1, one.committed) for one in said["truncations"]]
    told = [(one["broker_id"], one["start"], one["end"], one["committed"]) for one in logs["truncations"]]
    assert sorted(reported) == sorted(told)
    assert sum(records_lost(said["truncations"]).values()) == logs["records_lost"]
