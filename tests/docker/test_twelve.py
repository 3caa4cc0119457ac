"""Twelve brokers at once, and three of them, the controller among them, killed together."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.docker.cluster import Cluster, until
from tests.docker.compose import running
from tests.docker.invariants import watched

pytestmark = pytest.mark.docker


@pytest.fixture
def twelve(images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(f"klammlarge{os.getpid()}", 12, tmp_path_factory.mktemp("compose")) as it:
        yield it


def test_three_of_twelve_are_killed_together(twelve: Cluster) -> None:
    """With four replicas no partition loses its whole ISR: all are led by survivors, and the three come back."""
    twelve.create_topic("wide", partitions=48, replication_factor=4)
    with watched(twelve):
        holder, epoch = until(twelve.seat, "a broker holds the seat")
        victims = [holder, *(one for one in twelve.broker_ids if one != holder)][:3]
        survivors = [one for one in twelve.broker_ids if one not in victims]
        twelve.kill(*(f"broker{one}" for one in victims))

        def are_led_by_survivors() -> bool:
            seat, states = twelve.seat(), twelve.told(survivors[0])
            return seat is not None and seat[1] > epoch and all(state.leader in survivors for state in states.values())

        until(are_led_by_survivors, "every partition is led by a survivor")
        twelve.start(*(f"broker{one}" for one in victims))
    assert all(len(state.isr) == 4 for state in twelve.told(holder).values())
