"""`klamm events`: its output is pinned, and following survives the controller it listened to."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

from controller.core.project.lines import Line
from controller.statelog.journal import RecentLines
from tests.api.api_support import FakeHandle, View, served
from tests.builders import a_cluster
from tests.support.deciding_support import DecidingHandle, a_cluster_to_command

DEADLINE_S = 60
STAMP = {"at_ms": 1_700_000_000_123, "cluster_id": "c", "controller_id": 1}


def a_led_line(number: int, epoch: int = 7) -> Line:
    return Line(
        **STAMP, controller_epoch=epoch, event_id=f"{epoch}-{number}", kind="partition", topic="orders",
        partition=number, source="OnlinePartition", target="OnlinePartition", reason="brokers gone 3", leader=2,
        leader_epoch=5, isr=(2, 1), version=9, zxid=77,
    )  # fmt: skip


def a_gone_line() -> Line:
    return Line(
        **STAMP, controller_epoch=7, event_id="7-9", kind="broker", broker_id=3, source="live", target="gone",
        reason="registration gone",
    )  # fmt: skip


def a_telling_handle() -> DecidingHandle:
    handle = DecidingHandle(a_cluster(orders=[[1, 2]]))
    handle.recent_lines = RecentLines(7)
    handle.recent_lines.accept([a_led_line(0), a_led_line(1), a_gone_line()])
    return handle


def test_the_last_lines_are_printed_for_people() -> None:
    handle = a_telling_handle()
    with a_cluster_to_command(handle.believed, handle) as (klamm, _):
        result = klamm("events", "--last", "2")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "22:13:20.123       7-1  partition orders-1            OnlinePartition -> OnlinePartition; "
        "leader 2, epoch 5; in sync 2,1; brokers gone 3\n"
        "22:13:20.123       7-9  broker 3                      live -> gone; registration gone\n"
    )


def test_json_is_the_line_of_the_state_change_log_and_can_be_filtered() -> None:
    handle = a_telling_handle()
    with a_cluster_to_command(handle.believed, handle) as (klamm, _):
        result = klamm("events", "-o", "json", "--kind", "broker")
        of_topic = klamm("events", "-o", "json", "--topic", "orders")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {
            **STAMP,
            "controller_epoch": 7,
            "event_id": "7-9",
            "kind": "broker",
            "broker_id": 3,
            "source": "live",
            "target": "gone",
            "reason": "registration gone",
        }
    ]
    assert [json.loads(line)["partition"] for line in of_topic.stdout.splitlines()] == [0, 1]


async def test_following_goes_on_with_the_next_controller_until_it_is_interrupted() -> None:
    handle = FakeHandle()
    handle.recent_lines = first = RecentLines(4)
    first.accept([a_led_line(1, epoch=4)])
    async with served(View(), handle) as url:
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("klamm")), "events", "--follow", "-o", "json", "--url", url,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None

        async def printed() -> tuple[int, int]:
            assert process.stdout is not None
            line = json.loads(await asyncio.wait_for(process.stdout.readline(), DEADLINE_S))
            return line["controller_epoch"], line["partition"]

        try:
            assert await printed() == (4, 1)
            first.accept([a_led_line(2, epoch=4)])
            assert await printed() == (4, 2)
            handle.recent_lines = second = RecentLines(5)  # the term ends, and another begins
            second.accept([a_led_line(3, epoch=5)])
            first.close()
            assert await printed() == (5, 3)
            process.send_signal(signal.SIGINT)
            _, said = await asyncio.wait_for(process.communicate(), DEADLINE_S)
            assert process.returncode == 0, said
            assert said == b"# some lines were missed: another controller decides now, or too much happened\n"
            second.close()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
