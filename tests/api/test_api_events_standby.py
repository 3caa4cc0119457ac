"""The stream of events where this process is not the controller: redirected, passed through, waited for."""

from __future__ import annotations

import socket

from controller.statelog.journal import RecentLines
from tests.api.api_support import (
    FakeHandle,
    View,
    a_broker,
    address_of,
    asking,
    reserved,
    served,
)
from tests.api.test_api_events import (
    EPOCH,
    a_leader,
    a_line,
    listening,
)
from tests.support.harness import a_broker as a_registered
from tests.support.harness import a_controller, a_server, until

PATIENT = "?wait=true&last=100"


def port_of(bound: socket.socket) -> int:
    return int(address_of(bound).partition(":")[2])


def a_standby(port: int) -> tuple[View, FakeHandle]:
    handle = FakeHandle()
    handle.stand_by((1, 77))
    return View(brokers=[a_broker(1, port=port), a_broker(2)], own_id=2), handle


async def test_a_standby_redirects_or_passes_the_stream_through() -> None:
    handle, recent_lines = a_leader(3)
    bound = reserved()
    port = port_of(bound)
    async with served(View(), handle, bound=bound), asking(*a_standby(port)) as client:
        async with client.get("/v1/events?last=1", allow_redirects=False) as response:
            assert response.status == 307
            assert response.headers["Location"] == f"http://{address_of(bound)}/v1/events?last=1"
        async with listening(client, "?last=1", Klamm_Forward="1", Last_Event_ID="4-1") as stream:
            assert await stream.ids(2) == ["4-2", "4-3"]
            recent_lines.accept([a_line()])
            assert await stream.ids(1) == ["4-4"]
            recent_lines.close()
            assert await stream.frame() is None


async def test_without_a_controller_there_is_no_stream() -> None:
    handle = FakeHandle()
    handle.stand_by(None)
    bound = reserved()
    port = port_of(bound)
    bound.close()
    headers = {"Klamm-Forward": "1"}
    for view, standby in ((View(), handle), a_standby(port)):  # the seat is vacant; its holder cannot be reached
        async with asking(view, standby) as client, client.get("/v1/events", headers=headers) as response:
            problem = await response.json(content_type="application/problem+json")
            assert (response.status, problem["code"]) == (503, "NOT_CONTROLLER")


async def test_a_waiting_subscriber_is_let_in_without_a_controller_and_hears_the_next_from_its_claim_on() -> None:
    bound = reserved()
    view, standby = a_standby(port_of(bound))
    standby.seat = None
    async with asking(view, standby) as client, listening(client, PATIENT, Klamm_Forward="1") as stream:
        assert await stream.block() == ": no controller answers\n"
        handle, recent_lines = a_leader()
        handle.is_active, handle.phase = False, "loading"  # it has claimed, and reads the cluster
        async with served(View(), handle, bound=bound):
            standby.seat = (1, 77)
            standby.seat_changes.ring()
            recent_lines.accept([a_line("controller", target="claimed")])
            frame = await stream.frame()
            assert frame is not None
            assert (frame.id, frame.kind, frame.data["target"]) == (f"{EPOCH}-1", "controller", "claimed")


async def test_a_waiting_subscriber_of_the_process_that_claims_hears_its_own_stream() -> None:
    view, handle = View(own_id=2), FakeHandle()
    handle.stand_by(None)
    async with asking(view, handle) as client, listening(client, PATIENT, Klamm_Forward="1") as stream:
        assert await stream.block() == ": no controller answers\n"
        recent_lines = RecentLines(EPOCH)
        recent_lines.accept([a_line("controller", target="claimed")])
        handle.recent_lines, handle.controller_epoch = recent_lines, EPOCH
        handle.seat_changes.ring()
        assert await stream.ids(1) == [f"{EPOCH}-1"]


async def test_only_a_forwarded_subscriber_can_wait() -> None:
    handle = FakeHandle()
    handle.stand_by(None)
    async with asking(View(), handle) as client, client.get(f"/v1/events{PATIENT}") as response:
        assert response.status == 503


async def test_a_forwarded_stream_ends_when_another_process_has_the_seat_though_the_first_is_silent() -> None:
    bound = reserved()
    view, standby = a_standby(port_of(bound))
    handle, _ = a_leader(1)
    async with (
        served(View(), handle, bound=bound),
        asking(view, standby) as client,
        listening(client, "?last=1", Klamm_Forward="1") as stream,
    ):
        assert await stream.ids(1) == ["4-1"]
        standby.seat_changes.ring()  # nothing has changed: it goes on
        assert not stream.response.content.at_eof()
        standby.seat = (3, 78)
        standby.seat_changes.ring()
        assert await stream.frame() is None


async def test_the_phases_of_a_term_are_in_its_stream_and_in_the_log_as_they_are_over() -> None:
    server = await a_server()
    await a_registered(server, 1)
    async with a_controller(server) as node:
        await until(lambda: node.handle.term is not None)
        recent_lines = node.held.recent_lines
        assert recent_lines is not None
        await until(lambda: any(one.target == "acknowledged" for one in node.heard.lines))
        marks = [line for line in node.heard.lines if line.kind == "controller"]
        assert list(dict.fromkeys(mark.target for mark in marks)) == [
            "claimed", "loaded", "decided", "committed", "told", "acknowledged",
        ]  # fmt: skip
        assert {(mark.event_id, mark.broker_id, mark.controller_epoch) for mark in marks} == {("1-1", 1, 1)}
        times = [mark.took_ms for mark in marks if mark.took_ms is not None]
        assert times == sorted(times)
        assert len(times) == len(marks)
        assert [entry.line for entry in recent_lines.after(0)] == node.heard.lines
