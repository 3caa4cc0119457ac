"""The claims of coverage about logs hold in their answers: no table called exact is empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.simulate import Simulation
from tests.spark.test_simulated import DIALECTS, a_case

#: at TRACE: which brokers acknowledged, in-sync replicas, latency of requests
GRADES = {
    "0.8": ("exact", "partial", "partial"),
    "0.10": ("exact", "partial", "partial"),
    "1.1": ("exact", "partial", "exact"),
    "2.8": ("exact", "exact", "exact"),
    "3.9": ("exact", "exact", "exact"),
    "ours": ("exact", "exact", "partial"),
}


@pytest.mark.parametrize("version", GRADES)
def test_a_table_called_exact_has_rows_and_one_called_none_has_not(tmp_path: Path, version: str) -> None:
    case = a_case(tmp_path, Simulation(1, dialect=DIALECTS[version]()).run(faults=8), "TRACE")
    grades = {one.question: one.grade for one in case.rows("coverage")}
    acks, isrs, latency = GRADES[version]
    assert grades["which brokers acknowledged"] == acks
    assert any(one.slowest is not None for one in case.rows("failovers")) == (acks == "exact")
    assert grades["in-sync replicas"] == isrs
    assert bool(case.rows("isr_timeline")) == (version != "0.8")
    assert grades["latency of requests"] == latency
    assert bool(case.rows("rpc_latency")) == (latency != "none")
