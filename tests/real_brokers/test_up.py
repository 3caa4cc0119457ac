"""`make kafka-up`: a person's way through it, from the first rates over a dead broker to the end of all processes."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from signal import Signals

import pytest

from brokerstub.lab.child_process import Child, launched
from brokerstub.lab.kafka import HOST, jars
from brokerstub.lab.ports import free_ports
from tests.real_brokers.cluster import JARS
from tests.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.java, pytest.mark.maven, pytest.mark.long]
RATES = re.compile(r"acknowledged +(\d+)/s +consumed +(\d+)/s(.*)")


async def klamm(*words: str) -> tuple[int | None, str]:
    command = (sys.executable, "-c", "from controller.cli import main; main()", *words)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()


def rates(log: Path, after: int = 0) -> list[tuple[int, int, str]]:
    """Acknowledged, consumed, and the absent brokers; of each second."""
    found = RATES.finditer(log.read_text())
    return [(int(one[1]), int(one[2]), one[3].strip()) for one in found][after:]


def is_flowing(log: Path, after: int = 0) -> bool:
    return any(acknowledged > 100 and consumed > 100 for acknowledged, consumed, _ in rates(log, after))


@pytest.mark.timeout(300)
async def test_a_broker_is_killed_and_started_from_another_terminal_and_the_rates_show_it(tmp_path: Path) -> None:
    var, log, base = tmp_path / "kafka", tmp_path / "up.log", free_ports(11)
    await jars(JARS)
    var.mkdir()
    (var / "jars").symlink_to(JARS / "jars")
    command = (sys.executable, "-u", "-m", "brokerstub.lab.kafka_demo", "--var", str(var), "--port-base", str(base))
    lab: Child = await launched(command, log)
    try:
        url, where = f"http://{HOST}:{base + 9}", ("--var", str(var))
        await until(lambda: lab.exit_code is not None or is_flowing(log), "records flow")
        assert lab.exit_code is None, log.read_text()
        assert (await klamm("wait", "--for", "healthy", "--timeout", "60s", "--url", url))[0] == 0
        seconds = len(rates(log))
        assert await klamm("kill", "2", *where) == (0, "broker 2 was killed\n")
        await until(lambda: any("broker 2 does not run" in one[2] for one in rates(log, seconds)), "its death is shown")

        async def is_known() -> bool:
            code, said = await klamm("status", "--url", url)
            return code == 1 and "broker 2 is gone" in said

        await until(is_known, "the controller knows")
        await until(lambda: is_flowing(log, len(rates(log)) - 3), "records flow on without it")
        assert "broker 2 was started" in (await klamm("start", "2", *where))[1]
        assert (await klamm("wait", "--for", "healthy", "--timeout", "60s", "--url", url))[0] == 0
        code, said = await klamm("cut", "2", *where)
        assert (code, "a real broker can be killed, stopped, started, frozen" in said) == (1, True)
        assert [line.split()[2] for line in (await klamm("ps", *where))[1].splitlines()[1:]] == ["running"] * 5
        code, said = await klamm("down", *where)
        assert (code, "processes have ended" in said) == (0, True), said
        async with asyncio.timeout(DEADLINE_S):
            await lab.wait()
    finally:
        lab.signal(Signals.SIGTERM)
        await lab.wait()


async def test_jars_are_fetched_into_a_folder_named_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # as in a fresh clone, where they were never fetched
    found = await jars(Path("var"))
    assert found == tmp_path / "var" / "jars"
    assert list(found.glob("kafka_2.13-*.jar"))
