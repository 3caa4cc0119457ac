"""A pytest plugin for authors of Kafka clients: the fixture `klamm_cluster`, a cluster that can be troubled.

pytest finds it by its entry point, in every project where Klamm is installed. It starts nothing until a test asks for
the fixture, and then one cluster for the whole run.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from brokerstub.lab.bodies import Trouble, TroubleKind

#: on a machine that has much else to do
START_MS = 240_000
HEALS_WITHIN_S = 60.0
_numbers = itertools.count(1)


class KlammCluster:
    """A cluster of real processes on this machine, while the tests run."""

    def __init__(self, var: Path, brokers: int) -> None:
        from brokerstub.lab.ports import free_port, free_ports  # noqa: PLC0415
        from brokerstub.lab.settings import LabSettings  # noqa: PLC0415

        self._var = var
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._settings = LabSettings(
            var=var,
            brokers=brokers,
            port_base=free_ports(brokers + 1),
            kafka_port_base=free_ports(brokers + 1),
            zookeeper_port=free_port(),
        )

    @property
    def bootstrap_servers(self) -> str:
        """Returns the setting with which clients are configured."""
        servers = self._settings.bootstrap_servers
        assert servers is not None, "its brokers keep records"
        return servers

    @property
    def url(self) -> str:
        """Of a broker: its API, and the dashboard."""
        return f"http://127.0.0.1:{self._settings.port_base + 1}"

    @property
    def supervisor(self) -> str:
        """Where trouble is asked for by HTTP."""
        return f"http://127.0.0.1:{self._settings.port_base}"

    def start(self) -> None:
        from brokerstub.lab import remote  # noqa: PLC0415

        self._supervisor = remote.start(self._settings, START_MS, lambda _: None)

    def end(self) -> None:
        from brokerstub.lab import remote  # noqa: PLC0415

        remote.end(self._var)
        if self._supervisor is not None:
            self._supervisor.wait()

    def topic(self, partitions: int = 1, replication_factor: int = 3) -> str:
        """Returns the name of a new topic, which is led. It waits until earlier trouble has healed."""
        import asyncio  # noqa: PLC0415

        name = f"topic-{next(_numbers)}"
        factor = min(replication_factor, self._settings.brokers)
        asyncio.run(self._create({"name": name, "partitions": partitions, "replication_factor": factor}))
        return name

    async def _create(self, wanted: dict[str, object]) -> None:
        import asyncio  # noqa: PLC0415
        import time  # noqa: PLC0415

        import msgspec  # noqa: PLC0415

        from controller.wire.client import ExchangeError, HttpClient  # noqa: PLC0415

        client, end = HttpClient(), time.monotonic() + HEALS_WITHIN_S
        headers = {"Content-Type": "application/json", "Klamm-Forward": "1"}
        url, body = f"{self.url}/v1/topics", msgspec.json.encode(wanted)
        try:
            while True:
                try:
                    status, answer = await client.post(url, body, headers, 30_000)
                except (ExchangeError, TimeoutError) as error:
                    status, answer = 503, str(error).encode()
                if status < 300:
                    return
                if time.monotonic() > end:
                    raise RuntimeError(f"topic {wanted['name']} cannot be had: {answer.decode(errors='replace')}")
                await asyncio.sleep(0.2)
        finally:
            await client.close()

    def trouble(
        self,
        kind: TroubleKind | None = None,
        topic: str | None = None,
        partition: int | None = None,
        *,
        for_ms: int | None = None,
        seed: str | None = None,
    ) -> Trouble:
        """As `klamm trouble` says it: when this returns, it has begun, and an unclean election is over."""
        from brokerstub.lab import remote  # noqa: PLC0415
        from brokerstub.lab.bodies import TroubleOrder  # noqa: PLC0415

        return remote.trouble(self._var, TroubleOrder(kind, topic, partition, for_ms, seed))

    def order(self, verb: str, broker_id: int) -> bool:
        """`kill`, `stop`, `start`, `freeze`, `thaw`, `cut`, `heal`; whether it changed anything."""
        from brokerstub.lab import remote  # noqa: PLC0415
        from brokerstub.lab.bodies import Order  # noqa: PLC0415

        return remote.order(self._var, verb, Order(broker_id)).changed


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("klamm", "a Kafka cluster that can be troubled")
    group.addoption("--klamm-brokers", type=int, default=3, help="how many brokers it has (3)")


@pytest.fixture(scope="session")
def klamm_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KlammCluster]:
    """Started at its first use, ended with the run."""
    cluster = KlammCluster(tmp_path_factory.mktemp("klamm"), request.config.getoption("--klamm-brokers"))
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.end()
