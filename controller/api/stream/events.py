"""`/v1/events`: the decisions of the active controller, line by line, as Server-Sent Events; with its pulse, if asked.

Ids are `<controller_epoch>-<n>`, n counting the lines of a term from 1. It keeps nothing per subscriber but its
position: a subscriber that resumes within the kept lines gets all that it missed, any other a `reset` and the present
state. A subscriber that does not read is dropped, and all give way to the controller while that works. A stream begins
with the claim and ends with the term; on a standby the controller's is passed through, until another process has the
seat.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import Annotated, Any, Final

import msgspec
import structlog
from aiohttp import web

from controller.api.bodies import cluster_body, own_verdict, query_of
from controller.api.listing import Summaries
from controller.api.middleware.quota import ConcurrencyLimit, caller_of
from controller.api.ports import ClusterView, ControllerHandle
from controller.api.problems import ProblemError, unavailable
from controller.api.reader_turns import is_working
from controller.api.routing.active import ActiveController
from controller.api.stream.pulse import Pulse
from controller.base.config import Limits
from controller.core.codes import Code
from controller.statelog.journal import LINES_KEPT, Entry, RecentLines
from controller.wire.bodies import CONTROLLER_EPOCH, FORWARD, number_in
from controller.wire.client import ExchangeError


class SubscriberGoneError(Exception):
    """The subscriber has left, or does not read."""


class Subscriber:
    """One request for a stream, and its answer."""

    def __init__(self, request: web.Request, write_timeout_ms: int) -> None:
        self.request = request
        self.response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        self._write_timeout_ms = write_timeout_ms

    async def begin(self, controller_epoch: int) -> None:
        """From now on there is no refusal any more. Once is enough."""
        if not self.response.prepared:
            self.response.headers[CONTROLLER_EPOCH] = str(controller_epoch)
            await self.response.prepare(self.request)

    async def write(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(self._write_timeout_ms / 1_000):
                await self.response.write(data)
        except ConnectionResetError as error:
            raise SubscriberGoneError from error
        except TimeoutError as error:
            log.warning("subscriber.dropped", waited_ms=self._write_timeout_ms)
            raise SubscriberGoneError from error

    def abort(self) -> None:
        """Closes the connection without waiting for unwritten data."""
        if self.request.transport is not None:
            self.request.transport.abort()


RETRY_MS: Final = 1_000
LOOK_AGAIN_MS: Final = 20
#: a controller that cannot be reached has perhaps died, and its seat is not vacant yet
TRY_AGAIN_MS: Final = 250
BEAT_EVERY_MS: Final = 1_000
LAST_EVENT_ID: Final = "Last-Event-ID"
#: of either number of an id: 64 bits

log = structlog.get_logger()


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`last`: so many lines of the past come first, unless the stream is resumed where it was left. `follow` false: it
    ends with what has happened. `pulse`: each second also a frame without an id, of what only the controller knows.
    `wait`, for those who ask with `Klamm-Forward: 1`: without a controller it begins with the next one's claim, and is
    no refusal."""

    last: Annotated[int, msgspec.Meta(ge=0, le=LINES_KEPT)] = 0
    follow: bool = True
    pulse: bool = False
    wait: bool = False


class Events:
    """The streams of one process, its own and those it passes through."""

    def __init__(
        self,
        view: ClusterView,
        handle: ControllerHandle,
        active: ActiveController,
        pulse: Pulse,
        summaries: Summaries,
        limits: Limits,
    ) -> None:
        self._view = view
        self._handle = handle
        self._active = active
        self._pulse = pulse
        self._limits = limits
        self._summaries = summaries
        self._line = asyncio.Lock()
        self._newest_piece: tuple[tuple[int, int, int], int, bytes] = ((-1, -1, -1), -1, b"")
        self._subscribers: set[asyncio.Task[Any]] = set()
        #: how many there are in all is refused otherwise
        self._room = ConcurrencyLimit(limits.event_subscribers, limits.event_subscribers_per_caller, "streams")

    def routes(self) -> Sequence[web.RouteDef]:
        return [web.get("/v1/events", self.events, allow_head=False)]

    async def close(self, app: web.Application) -> None:
        """The process ends, and streams do not end by themselves."""
        for task in self._subscribers:
            task.cancel()

    async def events(self, request: web.Request) -> web.StreamResponse:
        query, last_id = query_of(request, EventsQuery), request.headers.get(LAST_EVENT_ID)
        subscriber = Subscriber(request, self._limits.event_write_timeout_ms)
        with self._counted(caller_of(request)):
            try:
                if query.wait and request.headers.get(FORWARD) == "1":
                    await self._stream_when_there_is_one(subscriber, query, last_id)
                else:
                    await self._stream(subscriber, query, last_id)
            except SubscriberGoneError:
                subscriber.abort()
            return subscriber.response

    async def _stream_when_there_is_one(self, subscriber: Subscriber, query: EventsQuery, last_id: str | None) -> None:
        await subscriber.begin(self._view.controller_epoch)
        while True:
            try:
                return await self._stream(subscriber, query, last_id)
            except ProblemError:  # no process has the seat, or its holder cannot be reached
                await subscriber.write(b": no controller answers\n\n")
            await self._active.learn_holders()
            with suppress(TimeoutError):
                async with asyncio.timeout(TRY_AGAIN_MS / 1_000):
                    await self._handle.seat_changes.wait()

    async def _stream(self, subscriber: Subscriber, query: EventsQuery, last_id: str | None) -> None:
        """Of one term: this process's, or another's passed through. Raises ProblemError where there is none."""
        recent_lines = None if self._handle.term is None else self._handle.term.recent_lines
        if recent_lines is None:
            await self._pass_through(subscriber, last_id)
        else:
            await subscriber.begin(recent_lines.controller_epoch)
            await subscriber.write(b"retry: %d\n\n" % RETRY_MS)
            await self._follow(subscriber, recent_lines, query, last_id)

    @contextmanager
    def _counted(self, caller: str) -> Iterator[None]:
        if len(self._subscribers) >= self._limits.event_subscribers:
            raise unavailable("BUSY", f"{self._limits.event_subscribers} streams are open here; close one first")
        place, task = self._room.enter(caller), asyncio.current_task()
        assert task is not None
        self._subscribers.add(task)
        try:
            yield
        finally:
            self._subscribers.discard(task)
            place.leave()

    async def _follow(
        self, subscriber: Subscriber, recent_lines: RecentLines, query: EventsQuery, last_id: str | None
    ) -> None:
        """Until the term is over, and then only after its last line."""
        position, beat, beat_at = _position_of(last_id, recent_lines), 0, 0.0
        is_lost = position is None and last_id is not None
        if position is None:
            position = max(recent_lines.number - query.last, recent_lines.forgotten)
        while True:
            if is_lost or position < recent_lines.forgotten:
                position = max(position, recent_lines.forgotten)
                await subscriber.write(await self._reset_frame(recent_lines, position))
                is_lost = False
            if (
                query.pulse
                and time.monotonic() >= beat_at
                and (newer := await self._pulse.beat_after(beat)) is not None
            ):
                beat, body = newer
                await subscriber.write(b"event: pulse\ndata: %s\n\n" % body)
                beat_at = time.monotonic() + BEAT_EVERY_MS / 1_000
            if recent_lines.number > position:
                await self._give_way(recent_lines)
                if position >= recent_lines.forgotten:
                    position, piece = self._piece_after(position, recent_lines)
                    await subscriber.write(piece)
                    await asyncio.sleep(0)
            elif recent_lines.is_closed or not query.follow:
                return
            else:
                await self._wait(subscriber, recent_lines, is_beating=query.pulse)

    async def _give_way(self, recent_lines: RecentLines) -> None:
        """Waits until the controller of this process rests, or for so long: a subscriber must not slow down the
        controller. One subscriber looks, the others stand in line behind it."""
        give_up_at = time.monotonic() + self._limits.event_gives_way_ms / 1_000
        async with self._line:
            while self._is_busy() and not recent_lines.is_closed and time.monotonic() < give_up_at:  # noqa: ASYNC110 - rest sets no event
                await asyncio.sleep(LOOK_AGAIN_MS / 1_000)

    def _is_busy(self) -> bool:
        """While it loads it is watched above all: nothing but its phases is told then."""
        return self._handle.is_active and is_working(self._handle)

    def _piece_after(self, position: int, recent_lines: RecentLines) -> tuple[int, bytes]:
        """Returns the next lines as bytes, and the number of the last; most subscribers are equally far, and share
        them."""
        key = recent_lines.controller_epoch, position, recent_lines.number
        if self._newest_piece[0] != key:
            entries = recent_lines.after(position)[: self._limits.events_per_write]
            piece = b"".join(_frame_of(entry, recent_lines) for entry in entries)
            self._newest_piece = key, entries[-1].number, piece
        return self._newest_piece[1:]

    async def _wait(self, subscriber: Subscriber, recent_lines: RecentLines, *, is_beating: bool) -> None:
        """Waits until there is news, or time for a beat. Without beats a comment is sent now and then, which also finds
        subscribers that have left."""
        try:
            async with asyncio.timeout((BEAT_EVERY_MS if is_beating else self._limits.event_heartbeat_ms) / 1_000):
                await recent_lines.wait()
        except TimeoutError:
            if not is_beating:
                await subscriber.write(b": nothing new\n\n")

    async def _reset_frame(self, recent_lines: RecentLines, position: int) -> bytes:
        summary = await self._summaries.newest()  # of the active controller's own stream
        body = cluster_body(self._view, self._handle, summary, own_verdict(self._view, self._handle, summary))
        return _frame(recent_lines.controller_epoch, position, "reset", msgspec.json.encode(body))

    async def _pass_through(self, subscriber: Subscriber, last_id: str | None) -> None:
        """Passes another process's stream through, until it ends or another process has the seat: a frozen controller
        ends nothing."""
        seat = self._handle.seat
        location, headers = self._active.passing_on(subscriber.request, b"")
        headers |= {} if last_id is None else {LAST_EVENT_ID: last_id}
        client = self._active.client()
        scope = asyncio.timeout(None)
        ending = asyncio.create_task(self._end_when_the_seat_moved(seat, scope), name="end of a stream passed through")
        try:
            with suppress(TimeoutError):
                async with (
                    scope,
                    aclosing(client.stream(location, headers, 3 * self._limits.event_heartbeat_ms)) as pieces,
                ):
                    await self._pass_pieces(subscriber, pieces)
        finally:
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)
            await client.close()

    async def _end_when_the_seat_moved(self, seat: tuple[int, int] | None, scope: asyncio.Timeout) -> None:
        while self._handle.seat == seat and self._handle.term is None:
            await self._handle.seat_changes.wait()
        scope.reschedule(asyncio.get_running_loop().time())

    async def _pass_pieces(self, subscriber: Subscriber, pieces: AsyncGenerator[bytes]) -> None:
        try:
            first = await anext(pieces, b"")
        except ExchangeError:
            detail = "the controller's stream cannot be had now; try again"
            raise unavailable(Code.NOT_CONTROLLER.name, detail) from None
        await subscriber.begin(self._view.controller_epoch)
        try:
            await subscriber.write(first)
            async for piece in pieces:
                await subscriber.write(piece)
        except ExchangeError as error:
            log.info("stream.ended", reason=str(error))  # the subscriber asks again, and resumes


def _position_of(last_id: str | None, recent_lines: RecentLines) -> int | None:
    """Returns the number of the line that was had last; None if it is none of this term, or too old."""
    text, _, line = (last_id or "").partition("-")
    epoch, number = number_in(text), number_in(line)
    if epoch != recent_lines.controller_epoch or number is None:
        return None
    return number if recent_lines.forgotten <= number <= recent_lines.number else None


def _frame_of(entry: Entry, recent_lines: RecentLines) -> bytes:
    """Encoded once for all subscribers."""
    if entry.frame is None:
        data = msgspec.json.encode(entry.line)
        entry.frame = _frame(recent_lines.controller_epoch, entry.number, entry.line.kind, data)
    return entry.frame


def _frame(controller_epoch: int, number: int, kind: str, data: bytes) -> bytes:
    return b"id: %d-%d\nevent: %s\ndata: %s\n\n" % (controller_epoch, number, kind.encode(), data)
