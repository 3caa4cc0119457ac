"""`/v1/events`: what the active controller decides, line by line, as Server-Sent Events; with its pulse, if asked.

Ids are `<controller_epoch>-<n>`, n counting the lines of a term from 1. It keeps nothing per subscriber but how far
that one is: who resumes within the lines kept gets all that it missed, anybody else a `reset` and the present state.
Who does not read is dropped, and all give way to the controller while that works. A stream begins with the claim and
ends with the term; on a standby the controller's is passed through, until somebody else has the seat.
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

from controller.api.active import ActiveController
from controller.api.bodies import cluster_body, query_of
from controller.api.listing import Summaries
from controller.api.problems import ProblemError, unavailable
from controller.api.pulse import Pulse
from controller.api.subscriber import Subscriber, SubscriberGoneError
from controller.api.view import ClusterView, ControllerDoor
from controller.chronicle import LINES_KEPT, Chronicle, Entry
from controller.config import Limits
from controller.core.codes import Code
from controller.http import ExchangeError
from controller.metrics import IDLE
from controller.wire import FORWARD

RETRY_MS: Final = 1_000
LOOK_AGAIN_MS: Final = 20
#: a controller that cannot be reached has perhaps died, and its seat is not vacant yet
TRY_AGAIN_MS: Final = 250
BEAT_EVERY_MS: Final = 1_000
LAST_EVENT_ID: Final = "Last-Event-ID"
#: of either number of an id: 64 bits
DIGITS_MAX: Final = 19

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
        self, view: ClusterView, door: ControllerDoor, active: ActiveController, pulse: Pulse, limits: Limits
    ) -> None:
        self._view = view
        self._door = door
        self._active = active
        self._pulse = pulse
        self._limits = limits
        self._summaries = Summaries(view)
        self._line = asyncio.Lock()
        self._newest_piece: tuple[tuple[int, int, int], int, bytes] = ((-1, -1, -1), -1, b"")
        self._subscribers: set[asyncio.Task[Any]] = set()

    def routes(self) -> Sequence[web.RouteDef]:
        return [web.get("/v1/events", self.events, allow_head=False)]

    async def close(self, app: web.Application) -> None:
        """The process ends, and streams do not end by themselves."""
        for task in self._subscribers:
            task.cancel()

    async def events(self, request: web.Request) -> web.StreamResponse:
        query, last_id = query_of(request, EventsQuery), request.headers.get(LAST_EVENT_ID)
        subscriber = Subscriber(request, self._limits.event_write_timeout_ms)
        with self._counted():
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
            except ProblemError:  # nobody has the seat, or who has it cannot be reached
                await subscriber.write(b": no controller answers\n\n")
            await self._active.learn_holders()
            with suppress(TimeoutError):
                async with asyncio.timeout(TRY_AGAIN_MS / 1_000):
                    await self._door.seat_changes.next()

    async def _stream(self, subscriber: Subscriber, query: EventsQuery, last_id: str | None) -> None:
        """Of one term: this process's, or another's passed through. Raises ProblemError where there is none."""
        chronicle = self._door.chronicle
        if chronicle is None:
            await self._pass_through(subscriber, last_id)
        else:
            await subscriber.begin(chronicle.controller_epoch)
            await subscriber.write(b"retry: %d\n\n" % RETRY_MS)
            await self._follow(subscriber, chronicle, query, last_id)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        if len(self._subscribers) >= self._limits.event_subscribers:
            raise unavailable("BUSY", f"{self._limits.event_subscribers} streams are open here; close one first")
        task = asyncio.current_task()
        assert task is not None
        self._subscribers.add(task)
        try:
            yield
        finally:
            self._subscribers.discard(task)

    async def _follow(
        self, subscriber: Subscriber, chronicle: Chronicle, query: EventsQuery, last_id: str | None
    ) -> None:
        """Until the term is over, and then only after its last line."""
        position, beat, beat_at = _position_of(last_id, chronicle), 0, 0.0
        is_lost = position is None and last_id is not None
        if position is None:
            position = max(chronicle.number - query.last, chronicle.forgotten)
        while True:
            if is_lost or position < chronicle.forgotten:
                position = max(position, chronicle.forgotten)
                await subscriber.write(await self._reset_frame(chronicle, position))
                is_lost = False
            if (
                query.pulse
                and time.monotonic() >= beat_at
                and (newer := await self._pulse.beat_after(beat)) is not None
            ):
                beat, body = newer
                await subscriber.write(b"event: pulse\ndata: %s\n\n" % body)
                beat_at = time.monotonic() + BEAT_EVERY_MS / 1_000
            if chronicle.number > position:
                await self._give_way(chronicle)
                if position >= chronicle.forgotten:
                    position, piece = self._piece_after(position, chronicle)
                    await subscriber.write(piece)
                    await asyncio.sleep(0)
            elif chronicle.is_closed or not query.follow:
                return
            else:
                await self._wait(subscriber, chronicle, is_beating=query.pulse)

    async def _give_way(self, chronicle: Chronicle) -> None:
        """Until the controller of this process rests, or for so long: who watches must not slow down who decides. One
        subscriber looks, the others stand in line behind it."""
        give_up_at = time.monotonic() + self._limits.event_gives_way_ms / 1_000
        async with self._line:
            while self._is_busy() and not chronicle.is_closed and time.monotonic() < give_up_at:  # noqa: ASYNC110 - rest sets no event
                await asyncio.sleep(LOOK_AGAIN_MS / 1_000)

    def _is_busy(self) -> bool:
        """While it loads it is watched above all: nothing but its phases is told then."""
        return self._door.is_active and (self._door.meters.controller_state != IDLE or self._door.inbox_depth > 0)

    def _piece_after(self, position: int, chronicle: Chronicle) -> tuple[int, bytes]:
        """The next lines as bytes, and the number of the last; most subscribers are equally far, and share them."""
        key = chronicle.controller_epoch, position, chronicle.number
        if self._newest_piece[0] != key:
            entries = chronicle.after(position)[: self._limits.events_per_write]
            piece = b"".join(_frame_of(entry, chronicle) for entry in entries)
            self._newest_piece = key, entries[-1].number, piece
        return self._newest_piece[1:]

    async def _wait(self, subscriber: Subscriber, chronicle: Chronicle, *, is_beating: bool) -> None:
        """Until there is news, or time for a beat; without beats a comment now and then, which also finds out who has
        left."""
        try:
            async with asyncio.timeout((BEAT_EVERY_MS if is_beating else self._limits.event_heartbeat_ms) / 1_000):
                await chronicle.news()
        except TimeoutError:
            if not is_beating:
                await subscriber.write(b": nothing new\n\n")

    async def _reset_frame(self, chronicle: Chronicle, position: int) -> bytes:
        body = cluster_body(self._view, self._door, await self._summaries.newest())
        return _frame(chronicle.controller_epoch, position, "reset", msgspec.json.encode(body))

    async def _pass_through(self, subscriber: Subscriber, last_id: str | None) -> None:
        """Another's stream, until it ends or somebody else has the seat: a frozen controller ends nothing."""
        seat = self._door.seat
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
        while self._door.seat == seat and self._door.chronicle is None:
            await self._door.seat_changes.next()
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
            log.info("stream.ended", reason=str(error))  # whoever listens asks again, and resumes


def _position_of(last_id: str | None, chronicle: Chronicle) -> int | None:
    """The number of the line that was had last; None if it is none of this term, or too old."""
    epoch, _, number = (last_id or "").partition("-")
    if not all(one.isascii() and one.isdecimal() and len(one) <= DIGITS_MAX for one in (epoch, number)):
        return None
    is_ours = int(epoch) == chronicle.controller_epoch and chronicle.forgotten <= int(number) <= chronicle.number
    return int(number) if is_ours else None


def _frame_of(entry: Entry, chronicle: Chronicle) -> bytes:
    """Encoded once for all subscribers."""
    if entry.frame is None:
        data = msgspec.json.encode(entry.line)
        entry.frame = _frame(chronicle.controller_epoch, entry.number, entry.line.kind, data)
    return entry.frame


def _frame(controller_epoch: int, number: int, kind: str, data: bytes) -> bytes:
    return b"id: %d-%d\nevent: %s\ndata: %s\n\n" % (controller_epoch, number, kind.encode(), data)
