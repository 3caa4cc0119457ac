"""Packets lost at random for a minute, at every broker; how many is counted where they are lost."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Final

import pytest

from tests.docker.cluster import Cluster, NoAnswerError
from tests.docker.invariants import watched
from tests.docker.network import ARRIVING, losing

pytestmark = pytest.mark.docker

LOSS: Final = 0.3
LOSS_S: Final = 60.0


def test_topics_are_created_and_led_while_a_third_of_all_packets_is_lost(cluster: Cluster) -> None:
    """Sessions may end and terms too, but nothing is undone or done twice."""
    created: list[float] = []
    with watched(cluster):
        with ExitStack() as stack:
            lossy = [stack.enter_context(losing(cluster, f"broker{one}", LOSS)) for one in cluster.broker_ids]
            begun = time.monotonic()
            while (now := time.monotonic() - begun) < LOSS_S:
                if _is_created(cluster, f"lossy-{len(created)}"):
                    created.append(now)
            counted = [one.packets(ARRIVING) for one in lossy]
        for packets in counted:
            assert packets.seen > 300, "a cluster that works says more"
            assert packets.dropped / packets.seen == pytest.approx(LOSS, abs=0.1)
        assert len(created) > 3
        assert created[-1] > LOSS_S / 2, f"nothing was created after {created[-1]:.0f} s"
    told = cluster.told(1)
    assert all((f"lossy-{number}", 0) in told for number in range(len(created)))


def _is_created(cluster: Cluster, name: str) -> bool:
    try:
        return cluster.try_to_create(name) in (200, 201)
    except NoAnswerError:
        return False  # asked again: a creation is idempotent by its content
