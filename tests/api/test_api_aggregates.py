"""The sums of a stream of the logs, as a broker serves them: none, none yet, damaged, old."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.base import clock
from tests.api.api_support import CONFIG, FakeHandle, View, asking

KEPT: dict[str, Any] = {
    "cluster": "kafka",
    "kept_by": "Spark 4.3.0 on this machine",
    "looked_ms": 1_699_996_460_000,
    "from_ms": 1_700_000_000_000,
    "to_ms": 1_700_000_050_000,
    "events": 12,
    "controllers": 2,
    "outages": 1,
    "partitions": 1,
    "leaderless_now": 0,
    "leaderless_unknown": 0,
    "leaderless_ms": 900,
    "longest_felt_ms": 5_900,
    "latest": [
        {
            "topic": "orders",
            "partition": 0,
            "start_ms": 1_700_000_010_000,
            "felt_from_ms": 1_700_000_005_000,
            "end_ms": 1_700_000_010_900,
            "cause": "broker_lost",
            "first_broker": 2,
            "leader": 3,
            "unclean": False,
            "unseen": None,
        }
    ],
    "moves": [
        {
            "machine": "partition",
            "source": "OnlinePartition",
            "target": "OfflinePartition",
            "cause": "broker_gone",
            "times": 1,
            "last_ms": 1_700_000_010_000,
        }
    ],
}


async def told(path: Path | None) -> dict[str, Any]:
    config = msgspec.structs.replace(CONFIG, klamm_aggregates_file=None if path is None else str(path))
    async with asking(View(), FakeHandle(), config=config) as client, client.get("/v1/aggregates") as response:
        assert response.status == 200
        found: dict[str, Any] = await response.json()
        return found


async def test_kept_aggregates_are_served_with_their_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the clock of their keeper says: here it is an hour behind."""
    monkeypatch.setattr(clock.time, "time_ns", lambda: 1_700_000_062_500 * 1_000_000)
    path = tmp_path / "aggregates.json"
    path.write_bytes(msgspec.json.encode(KEPT))
    os.utime(path, ns=(0, 1_700_000_060_000 * 1_000_000))
    said = await told(path)
    assert (said["kept"], said["age_ms"], said["detail"]) == (True, 2_500, None)
    assert said["aggregates"].items() <= KEPT.items()
    assert said["aggregates"].keys() == KEPT.keys() - {"cluster"}


async def test_where_there_is_none_it_says_why(tmp_path: Path) -> None:
    path = tmp_path / "aggregates.json"
    not_kept, none_yet = await told(None), await told(path)
    assert (not_kept["kept"], not_kept["aggregates"]) == (False, None)
    assert "klamm up --aggregate" in not_kept["detail"]
    assert (none_yet["kept"], none_yet["aggregates"]) == (True, None)
    large = b" " * (1 << 20) + msgspec.json.encode(KEPT)
    for damaged in (b"", b"{", b"[]", b'{"events": "many"}', b'{"a":' * 5_000, b"\xff", large):
        path.write_bytes(damaged)
        said = await told(path)
        assert (said["kept"], said["aggregates"]) == (True, None), damaged[:20]
        assert "cannot be read" in said["detail"]
