"""Controlled shutdown: which controller a broker asks, how often, and that it stops in the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from brokerstub.runtime import Seat, hand_over
from controller.base.config import BrokerConfig
from controller.core.codes import Code
from controller.wire import bodies
from controller.wire.bodies import ControlledShutdownAnswer, RemainingPartition
from controller.wire.client import NoAnswerError
from controller.wire.signing import Incarnation, Signer

CONFIG = BrokerConfig(
    broker_id=3,
    zookeeper_connect="",
    log_dirs="d",
    controlled_shutdown_retry_backoff_ms=1,
    controller_socket_timeout_ms=7,
)
OWN = Incarnation(3, 300)
DONE = (200, bodies.encode(ControlledShutdownAnswer()))
LEFT = (200, bodies.encode(ControlledShutdownAnswer(Code.NONE, [RemainingPartition("orders", 0)])))
MOVED = (200, bodies.encode(ControlledShutdownAnswer(Code.NOT_CONTROLLER)))

Answer = tuple[int, bytes] | Exception


class Controllers:
    """Answer one after the other."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], timeout_ms: int) -> tuple[int, bytes]:
        assert (body, headers[bodies.SENDER], timeout_ms) == (b"{}", "3 300", 7)
        self.asked.append(url)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def at(*ports: int | None) -> Callable[[], Seat | None]:
    seats = iter(
        [None if port is None else Seat(Incarnation(port, 100), 1, f"http://127.0.0.1:{port}") for port in ports]
    )
    return lambda: next(seats)


async def test_a_broker_that_leads_nothing_more_asks_once() -> None:
    controllers = Controllers(DONE)
    assert await hand_over(controllers, OWN, CONFIG, at(1), Signer())
    assert controllers.asked == ["http://127.0.0.1:1/rpc/v1/controlled-shutdown"]


@pytest.mark.parametrize(
    "obstacle",
    [LEFT, MOVED, (503, b"{}"), (200, b"{"), NoAnswerError("reset")],
    ids=["left", "moved", "busy", "?", "cut"],
)
async def test_it_asks_again_and_asks_the_controller_of_that_moment(obstacle: Answer) -> None:
    controllers = Controllers(obstacle, DONE)
    assert await hand_over(controllers, OWN, CONFIG, at(1, 2), Signer())
    assert [url.rpartition("/rpc")[0][-1] for url in controllers.asked] == ["1", "2"]


async def test_without_a_controller_it_waits_for_one() -> None:
    controllers = Controllers(DONE)
    assert await hand_over(controllers, OWN, CONFIG, at(None, None, 2), Signer())
    assert len(controllers.asked) == 1


async def test_after_so_many_attempts_it_stops_anyway() -> None:
    controllers = Controllers(LEFT, LEFT, LEFT)
    assert not await hand_over(controllers, OWN, CONFIG, at(1, 1, 1), Signer())
    assert len(controllers.asked) == CONFIG.controlled_shutdown_max_retries
