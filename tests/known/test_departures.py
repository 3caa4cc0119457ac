"""Why brokers and controllers of the recorded KRaft clusters went, against what was done to them."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from itertools import pairwise
from typing import Any, Final

import pytest

from sparkjobs.history.departures import UNEXPLAINED, explained
from sparkjobs.history.log_join import joined
from tests.known.test_joined import CLUSTER, both, record

_CAUSE: Final = {"kill": "died", "sigstop": "silent", "sigterm": "shut down", "log-dir-gone": "lost a disk"}


def timeline() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CLUSTER / "timeline.jsonl").read_text().splitlines()]


def acts_on(kind: str) -> list[tuple[int, int, str]]:
    """Node, time and the cause that it is; without a freeze that ended within the session."""
    return [
        (int(one["who"].rpartition("-")[2]), one["at_ms"], _CAUSE[one["what"]])
        for one in timeline()
        if one["what"] in _CAUSE and one["who"].startswith(kind) and "short" not in one
    ]


@pytest.mark.parametrize("with_logs", [True, False])
def test_every_fault_of_a_broker_is_named_with_its_cause_and_none_is_invented(with_logs: bool) -> None:
    """Without logs, only the broker that led nothing and never came back is not known. Two healthy brokers were fenced
    by a new controller, to which they had not spoken yet."""
    rows: list[Any] = list((both() if with_logs else joined(record(), {}))["record_departures"])
    left = list(rows)
    for broker, at_ms, cause in acts_on("broker-"):
        found = next((one for one in left if one.broker == broker and one.gone_ms >= at_ms - 30), None)
        assert found is not None, (broker, at_ms)
        expected = "unknown" if broker == 4 and not with_logs else cause
        assert (found.cause, found.gone_ms - at_ms < 17_000) == (expected, True), (at_ms, found)
        left.remove(found)
    assert [(one.broker, one.cause) for one in left] == [(2, "silent"), (1, "silent")]
    assert all("controller 102 had begun" in one.said for one in left)
    wrote = "and the broker wrote lines meanwhile"
    assert [one.broker for one in left if wrote in one.said] == ([1] if with_logs else [])


def test_every_failover_of_the_controller_is_named_with_its_cause() -> None:
    rows: list[Any] = list(both()["record_takeovers"])
    assert [(one.before, one.controller, one.cause) for one in rows] == [
        (102, 101, "died"), (101, 102, "silent"), (102, 103, "no majority")
    ]  # fmt: skip
    faults = [at_ms for node, at_ms, _ in acts_on("controller-") if node in (102, 101)]
    for one, at_ms in zip(rows, [faults[0], faults[1], 1795095914820], strict=True):
        assert abs(at_ms - one.last_ms) < 700, "beats come every half a second"
    assert rows[0].last_ms < rows[0].noticed_ms < rows[0].won_ms < rows[0].active_ms < rows[0].first_ms
    unknown: list[Any] = list(joined(record(), {})["record_takeovers"])
    assert {(one.cause, one.said.rpartition(": ")[2]) for one in unknown} == {
        ("unknown", "its controller.log would tell when this one ended")
    }


def test_the_phases_of_a_departure_follow_each_other() -> None:
    rows: list[Any] = list(both()["record_departures"])
    for one in rows:
        known = [ms for ms in (one.heard_ms, one.gone_ms, one.acted_ms, one.back_ms) if ms is not None]
        if one.cause == "lost a disk":
            assert (one.heard_ms, one.back_ms) == (None, None)
        elif one.cause != "shut down":
            assert one.heard_ms is not None
            assert known == sorted(known), one
        elif one.broker != 4:
            assert one.asked_ms < one.gone_ms < one.back_ms
    assert sum(one.elected for one in rows) == 56
    assert all(one.acted_ms is not None for one in rows if one.elected)


def test_each_outage_is_explained_by_the_broker_that_went() -> None:
    outages: list[Any] = list(both()["record_outages"])
    assert len(outages) == 60
    assert UNEXPLAINED not in {one.why for one in outages}
    assert Counter(one.why.rpartition(": ")[2] for one in outages) == {"died": 43, "shut down": 10, "silent": 7}
    (again,) = explained([outages[0]], [])
    assert again.why == UNEXPLAINED


def _is_of(row: Any, name: str) -> bool:
    return f"{row.topic}-{row.partition}" == name


def explanation_of(gap: dict[str, int], name: str, tables: dict[str, list[Any]]) -> str | None:
    """Which row says why a producer had no answer: a leader that was missing; a member of the ISR that was silent until
    it was fenced; fewer in sync than the topic asks for; an election that clients had to learn of."""
    low, high = gap["from_ms"] - 300, gap["to_ms"] + 300
    for one in tables["record_outages"]:
        if _is_of(one, name) and one.from_ms <= high and (one.acted_ms or one.to_ms or high) >= low:
            return "outage"
    states = [one for one in tables["record_partition_states"] if _is_of(one, name) and one.from_ms <= high]
    states = [one for one in states if one.to_ms is None or one.to_ms >= low]
    gone = {one.broker for one in tables["record_departures"] if low <= one.gone_ms <= high}
    gone |= {one.broker for one in tables["record_departures"] if one.asked_ms and low <= one.asked_ms <= high}
    if any(gone & {*one.isr} for one in states):
        return "silent replica"
    if name.startswith("orders-") and any(len(one.isr) < 2 for one in states):
        return "too few in sync"
    if any({*one.isr} - {*after.isr} for one, after in pairwise(states)):
        return "replica left"
    if any(_is_of(one, name) and low <= one.at_ms <= high for one in tables["record_elections"]):
        return "election"
    return None


def leaders_in(gap: dict[str, int], name: str, tables: dict[str, list[Any]]) -> set[int]:
    return {
        one.leader
        for one in tables["record_partition_states"]
        if _is_of(one, name) and one.from_ms <= gap["to_ms"] and (one.to_ms or gap["to_ms"]) >= gap["from_ms"]
    }


def test_each_gap_at_the_producer_is_explained_or_is_one_of_those_that_leave_no_record() -> None:
    """librdkafka sends partitions of one leader in one request, which waits for the slowest of them. What is left: a
    freeze of 1.2 s within the session, which leaves no record, and the second in which the producer, whose records were
    lost, began anew."""
    gaps = json.loads(gzip.decompress((CLUSTER / "gaps.json.gz").read_bytes()))["partitions"]
    tables: dict[str, list[Any]] = {name: sorted(rows, key=_time) for name, rows in both().items() if rows}
    found = [
        (explanation_of(gap, name, tables), gap, leaders_in(gap, name, tables))
        for name, one in gaps.items()
        for gap in one["gaps_over_500_ms"]
    ]
    told = [(gap, leaders) for why, gap, leaders in found if why is not None]
    rest = [
        gap
        for why, gap, leaders in found
        if why is None
        and not any(
            leaders & others and other["from_ms"] < gap["to_ms"] and other["to_ms"] > gap["from_ms"]
            for other, others in told
        )
    ]
    frozen_ms = next(one["at_ms"] for one in timeline() if "short" in one)
    silent = [gap for gap in rest if gap["from_ms"] <= frozen_ms <= gap["to_ms"]]
    assert (len(found), len(told), len(silent), len(rest)) == (155, 127, 11, 14)
    lost = [one.at_ms for one in tables["record_losses"] if one.extent == "exact"]
    assert all(0 < gap["from_ms"] - max(lost) < 300 for gap in rest if gap not in silent)


def _time(row: Any) -> int:
    return int(getattr(row, "from_ms", 0) or getattr(row, "at_ms", 0))
