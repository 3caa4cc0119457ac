"""AlterPartition and ControlledShutdown as brokers send them: the event for the controller, and the answer."""

from __future__ import annotations

import pytest

from controller.api.ports import BusyError, Reply
from controller.base.config import Limits
from controller.core.codes import Code
from controller.core.events import AlterPartitionAsked, DrainAsked, Event, IsrProposal
from controller.loop.inbox import IsrReply, ShutdownReply
from controller.wire import bodies
from tests.api.api_support import FakeHandle, View, asking

BODY = b'{"topics":[{"topic_id":"t","partitions":[[3,7,9,0,[[1,101],[2,102]]],[4,7,9,0,[]]]}]}'
HEADERS = {"Content-Type": "application/json", "Klamm-Sender": "1 101"}


async def asked(
    handle: FakeHandle,
    body: bytes = BODY,
    limits: Limits | None = None,
    path: str = bodies.ALTER_PARTITION,
    **headers: str,
) -> tuple[int, bytes, str]:
    sent = {**HEADERS, **{key.replace("_", "-"): value for key, value in headers.items()}}
    async with (
        asking(View(), handle, limits or Limits()) as client,
        client.post(path, data=body, headers=sent) as response,
    ):
        return response.status, await response.read(), response.headers.get("Retry-After", "")


async def test_a_leaders_proposals_reach_the_controller_and_its_answer_comes_back() -> None:
    stands = bodies.AlteredTopic("t", [bodies.AlteredRow(3, 0, 1, 7, (1, 2), 10, 0)])
    handle = FakeHandle(lambda _: IsrReply(topics=[stands]))
    status, body, _ = await asked(handle)
    assert (status, body) == (
        200,
        b'{"error_code":0,"topics":[{"topic_id":"t","partitions":[[3,0,1,7,[1,2],10,0]]}]}',
    )
    proposals = [IsrProposal("t", 3, 7, 9, 0, ((1, 101), (2, 102))), IsrProposal("t", 4, 7, 9, 0, ())]
    assert handle.asked == [AlterPartitionAsked(1, 101, proposals)]


async def test_a_standby_answers_not_controller_in_the_body() -> None:
    handle = FakeHandle()
    handle.stand_by((2, 77))
    assert await asked(handle) == (200, b'{"error_code":41,"topics":[]}', "")


async def test_a_refusal_of_the_whole_request_travels_as_kafkas_number() -> None:
    handle = FakeHandle(lambda _: Reply(Code.STALE_BROKER_EPOCH))
    assert await asked(handle) == (200, b'{"error_code":77,"topics":[]}', "")


async def test_a_busy_controller_is_503_and_an_unknown_outcome_504() -> None:
    def busy(_: Event) -> Reply:
        raise BusyError("the session is suspended")

    status, _, retry_after = await asked(FakeHandle(busy))
    assert (status, retry_after) == (503, "1")
    status, body, _ = await asked(FakeHandle(lambda _: Reply(is_unknown=True)))
    assert (status, b"OUTCOME_UNKNOWN" in body) == (504, True)


@pytest.mark.parametrize("sender", ["", "1", "a b", "1 2 3", "-1 2", "1  2", "1 " + "9" * 60, "\u0661 2"])
async def test_a_sender_without_a_name_gets_400(sender: str) -> None:
    handle = FakeHandle()
    status, _, _ = await asked(handle, Klamm_Sender=sender)
    assert (status, handle.asked) == (400, [])


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"topics":1}', b'{"topics":[{"topic_id":"t","partitions":[[1]]}]}', b'{"x":' + b"[" * 100_000],
)
async def test_a_body_that_is_no_request_gets_400(body: bytes) -> None:
    handle = FakeHandle()
    status, _, _ = await asked(handle, body)
    assert (status, handle.asked) == (400, [])


async def test_bodies_are_bounded_in_bytes_and_in_partitions() -> None:
    handle = FakeHandle()
    assert (await asked(handle, BODY, Limits(partitions_per_rpc=1)))[0] == 400
    assert (await asked(handle, BODY, Limits(rpc_body_max_bytes=20)))[0] == 413
    assert handle.asked == []


async def test_a_broker_that_stops_is_drained_and_told_which_partitions_remain() -> None:
    remaining = [bodies.RemainingPartition("orders", 3)]
    handle = FakeHandle(lambda _: ShutdownReply(remaining=remaining))
    status, body, _ = await asked(handle, b"{}", path=bodies.CONTROLLED_SHUTDOWN)
    assert (status, body) == (200, b'{"error_code":0,"remaining":[{"topic":"orders","partition":3}]}')
    assert handle.asked == [DrainAsked(1, 101, is_shutdown=True)]


async def test_a_broker_that_stops_hears_kafkas_number_of_every_refusal() -> None:
    standby = FakeHandle()
    standby.stand_by((2, 77))
    stale = FakeHandle(lambda _: Reply(Code.STALE_BROKER_EPOCH))
    for handle, number in ((standby, 41), (stale, 77)):
        status, body, _ = await asked(handle, b"{}", path=bodies.CONTROLLED_SHUTDOWN)
        assert (status, body) == (200, b'{"error_code":%d,"remaining":[]}' % number)


async def test_a_shutdown_of_unknown_outcome_is_504_and_one_that_cannot_be_read_400() -> None:
    status, _, _ = await asked(FakeHandle(lambda _: Reply(is_unknown=True)), b"{}", path=bodies.CONTROLLED_SHUTDOWN)
    assert status == 504
    for body, sender in ((b"", "1 101"), (b"[]", "1 101"), (b"{}", "1")):
        handle = FakeHandle()
        status, _, _ = await asked(handle, body, path=bodies.CONTROLLED_SHUTDOWN, Klamm_Sender=sender)
        assert (status, handle.asked) == (400, [])
