"""Forgetting a broker over real HTTP, decided by the real core."""

from __future__ import annotations

import pytest

from controller.core.causes import Cause
from controller.core.changes.cluster import BrokerGone, Committed
from tests.api.api_support import FakeHandle
from tests.builders import a_cluster
from tests.support.deciding_support import DecidingHandle, a_cluster_to_command, exchange


async def test_a_broker_that_is_gone_is_forgotten_and_again_is_200() -> None:
    cluster = a_cluster(live=(1, 2, 3), orders=[[1, 2]])
    cluster.apply([Committed(BrokerGone(3, 13, "registration gone", Cause.BROKER_GONE))])
    handle = DecidingHandle(cluster)
    for was_known in (True, False):
        body = {"broker_id": 3, "was_known": was_known}
        assert await exchange(cluster, "DELETE", "/v1/brokers/3", handle=handle) == (200, body)
    assert 3 not in cluster.gone


async def test_a_live_or_hosting_broker_is_409_and_the_answer_says_how_to_go_on() -> None:
    for broker_id, words in [(3, "stop it first"), (9, "reassign them first")]:
        status, problem = await exchange(a_cluster(orders=[[1, 9]]), "DELETE", f"/v1/brokers/{broker_id}")
        assert (status, problem["code"]) == (409, "OPERATION_NOT_ATTEMPTED")
        assert words in problem["detail"]


@pytest.mark.parametrize("path", ["/v1/brokers/x", "/v1/brokers/-1"])
async def test_a_malformed_broker_is_400_and_reaches_no_controller(path: str) -> None:
    status, problem = await exchange(a_cluster(), "DELETE", path, handle=(handle := FakeHandle()))
    assert (status, problem["code"], handle.asked) == (400, "INVALID_REQUEST", [])


def test_the_command_forgets_it() -> None:
    cluster = a_cluster(orders=[[1, 2]])
    cluster.apply([Committed(BrokerGone(3, 13, "registration gone", Cause.BROKER_GONE))])
    with a_cluster_to_command(cluster) as (klamm, _):
        assert klamm("brokers", "forget", "3").output == "broker 3 is forgotten\n"
        assert klamm("brokers", "forget", "1").exit_code == 1
        again = klamm("brokers", "forget", "3")
        assert (again.exit_code, "there is no broker 3 (BROKER_ID_NOT_REGISTERED)" in again.stderr) == (1, True)
