"""The examples in the help of the commands for real brokers: run as they stand but for the addresses, beside a broker
that is there in ZooKeeper, and says which versions it serves, but does nothing."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socketserver
import struct
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from brokerstub.lab.ports import free_port
from brokerstub.lab.zookeeper import ZooKeeperServer
from controller.cli.group import klamm
from tests.cli.test_cli_examples import OF_REAL_BROKERS, example_of
from tests.cli.test_cli_formats import shape_of
from tests.integration.test_lab_examples import KLAMM, is_ready
from tests.processes import started
from tests.waiting import DEADLINE_S, waited_for

pytestmark = [pytest.mark.java, pytest.mark.slow]

CHROOT = "/beside-kafka"
API_VERSIONS = 18
OF_A_CONTROLLER = (4, 5, 6, API_VERSIONS)
#: their machine formats, pinned as those of all others are
TAKEN_SHAPE = {
    "taken": "bool",
    "controller_epoch": "null",
    "check": {
        "controller": "int",
        "controller_epoch": "int",
        "brokers": ["int"],
        "topics": "int",
        "partitions": "int",
        "reasons": [],
        "decisions": [],
        "writes": [],
        "writes_count": "int",
    },
}
HANDED_BACK_KEYS = {"handed_back"}
ZOOKEEPER_ANSWERS = re.compile(r"(?m)^kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms_count [1-9]")


class Versions(socketserver.StreamRequestHandler):
    """ApiVersions v0: the requests of a controller, in all versions. Any other request ends the connection."""

    def handle(self) -> None:
        while len(size := self.rfile.read(4)) == 4:
            key, _, correlation_id = struct.unpack_from(">hhi", self.rfile.read(*struct.unpack(">i", size)))
            if key != API_VERSIONS:
                return
            served = b"".join(struct.pack(">hhh", served, 0, 9) for served in OF_A_CONTROLLER)
            answer = struct.pack(">ihi", correlation_id, 0, len(OF_A_CONTROLLER)) + served
            self.wfile.write(struct.pack(">i", len(answer)) + answer)


@pytest.fixture
def broker_port() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Versions) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture
def kafka(zookeeper: ZooKeeperServer, broker_port: int) -> Iterator[str]:
    """Writes the nodes of a Kafka broker that is the controller; yields the address with the chroot."""
    address = f"127.0.0.1:{zookeeper.client_port}"
    maker = KazooClient(address)
    maker.start()
    maker.ensure_path(CHROOT)
    maker.chroot = CHROOT
    registration = {
        "version": 5, "host": "127.0.0.1", "port": broker_port, "jmx_port": -1,
        "endpoints": [f"PLAINTEXT://127.0.0.1:{broker_port}"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"}, "features": {}, "timestamp": "1",
    }  # fmt: skip
    nodes = {
        "/cluster/id": {"version": "1", "id": "kkkkkkkkkkkkkkkkkkkkkw"},
        "/controller_epoch": 1,
        "/feature": {"features": {}, "version": 2, "status": 1},
    }
    for path, content in nodes.items():
        maker.create(path, json.dumps(content).encode(), makepath=True)
    for path in ("/brokers/ids", "/brokers/topics", "/admin/delete_topics", "/config/changes", "/config/topics"):
        maker.ensure_path(path)
    maker.create("/brokers/ids/1", json.dumps(registration).encode(), ephemeral=True)
    maker.create("/controller", b'{"version":2,"brokerid":1,"timestamp":"1","kraftControllerEpoch":-1}', ephemeral=True)
    yield f"{address}{CHROOT}"
    maker.stop()
    maker.close()


def metrics_at(http: str) -> str:
    with urllib.request.urlopen(f"{http}/metrics", timeout=DEADLINE_S) as answer:
        return str(answer.read().decode())


@pytest.mark.long
def test_the_examples_for_real_brokers_run_one_after_the_other(kafka: str, tmp_path: Path) -> None:
    http, own = f"http://127.0.0.1:{free_port()}", f"kafka://127.0.0.1:{free_port()}"
    places = {"127.0.0.1:2181/kafka": kafka, "http://127.0.0.1:9101": http, "kafka://127.0.0.1:9100": own}

    def words_of(name: str) -> list[str]:
        example = example_of(name, klamm.commands[name])
        for written, actual in places.items():
            example = example.replace(written, actual)
        return [KLAMM, *shlex.split(example)[1:]]

    assert set(klamm.commands) >= OF_REAL_BROKERS == {"controller", "takeover", "handback"}
    with started(words_of("controller"), cwd=tmp_path, stderr=subprocess.PIPE) as process:
        waited_for(lambda: process.poll() is not None or is_ready(f"{http}/livez"), "the controller answers")
        assert process.poll() is None, process.stderr and process.stderr.read().decode()

        def run(*words: str) -> str:
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
            return done.stdout

        assert "broker 1, epoch 1" in run(*words_of("takeover"))  # only looks
        assert shape_of(json.loads(run(*words_of("takeover"), "-o", "json"))) == TAKEN_SHAPE
        assert "taken over" in run(KLAMM, "takeover", "--url", http)
        assert ZOOKEEPER_ANSWERS.search(metrics_at(http)), "its requests to ZooKeeper are measured as a broker's are"
        assert "handed back" in run(*words_of("handback"))
        assert "taken over" in run(KLAMM, "takeover", "--url", http)
        assert json.loads(run(*words_of("handback"), "-o", "json")).keys() == HANDED_BACK_KEYS
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
