"""Events that no cluster would write: in any order, and every table finds something in them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.spark import chaos
from tests.spark.plain import answers_for


@given(seed=st.integers(0, 2**32), count=st.integers(1, 60))
@example(seed=800, count=50)  # a broker that lost ZooKeeper and had it back within a millisecond
def test_the_order_of_events_changes_nothing(seed: int, count: int) -> None:
    draw = random.Random(seed)
    events = chaos.events_of(draw, "c", count)
    expected = answers_for(events)
    draw.shuffle(events)
    found = answers_for(events)
    for name, rows in expected.items():
        assert found[name] == rows, name


@pytest.mark.parametrize(
    ("clusters", "empty"),
    [
        (12, {"cluster_silences", "moves_out_of_turn", "truncations", "zookeeper_outages"}),
        pytest.param(240, set[str](), marks=pytest.mark.slow),
    ],
)
def test_of_many_random_clusters_no_table_is_empty_that_could_have_a_row(clusters: int, empty: set[str]) -> None:
    draw = random.Random(clusters)
    events = [one for number in range(clusters) for one in chaos.events_of(draw, f"c{number:03}", 1 + 9 * number % 80)]
    found: dict[str, Any] = dict(answers_for(events))
    assert {name for name, rows in found.items() if not rows} == empty
    assert any(one.acked for one in found["leader_changes"])
    assert {one.what for one in found["flapping"]} == {"broker", "leader", "isr"}
