"""Third-party clients log in at brokers with records, by TLS, SCRAM and PLAIN. Strangers are refused."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from brokerstub.lab.kafka import fetched, tool
from brokerstub.lab.ports import free_port
from brokerstub.lab.zookeeper import ZooKeeperServer
from tests.integration.test_foreign_java import NEWEST, TOOLS
from tests.kafka.test_kafka_login import record_of
from tests.real_brokers.cluster import JARS
from tests.security.authority import Authority
from tests.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.java, pytest.mark.slow]

USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="the-password-of-ann";'
BROKERS, RECORDS = (1, 2), 200

_numbers = itertools.count(1)


#: the type of librdkafka's configuration
Settings = dict[str, str | int | float | bool]


class Served(NamedTuple):
    """Bootstrap servers of each listener, and the authority that clients trust."""

    sasl_ssl: str
    sasl_plaintext: str
    ssl: str
    authority: Authority

    def client(self, mechanism: str, user: str, password: str) -> Settings:
        """Return librdkafka's configuration for a user."""
        return {
            "bootstrap.servers": self.sasl_ssl,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.authority.trust,
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }


@pytest.fixture
async def served(zookeeper: ZooKeeperServer, tmp_path: Path) -> AsyncIterator[Served]:
    """Two brokers with three listeners each; `bob` is a user of SCRAM, where Kafka's tools write users."""
    authority, chroot = Authority(tmp_path, "ours"), f"/logins-{next(_numbers)}"
    kinds = "SASL_SSL", "SASL_PLAINTEXT", "SSL"
    ports = {kind: [free_port() for _ in BROKERS] for kind in kinds}
    async with AsyncExitStack() as stack:
        for at, number in enumerate(BROKERS):
            http = free_port()
            listeners = [f"HTTP://127.0.0.1:{http}", *(f"{kind}://127.0.0.1:{ports[kind][at]}" for kind in kinds)]
            path = tmp_path / f"{number}.properties"
            path.write_text(
                f"broker.id={number}\nlog.dirs={tmp_path / str(number)}\n"
                f"zookeeper.connect={zookeeper.address}{chroot}\n"
                f"listeners={','.join(listeners)}\nzookeeper.session.timeout.ms=4000\n"
                f"ssl.keystore.location={authority.keystore(f'broker-{number}')}\n"
                f"ssl.truststore.location={authority.trust}\n"
                f"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512\nsasl.jaas.config={USERS}\n"
            )
            path.chmod(0o600)
            log = stack.enter_context((tmp_path / f"{number}.log").open("wb"))
            command = (sys.executable, "-m", "brokerstub", "--config", str(path))
            process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
            stack.push_async_callback(process.wait)
            stack.callback(process.kill)
        kazoo = KazooClient(zookeeper.address)
        await asyncio.to_thread(kazoo.start, DEADLINE_S)
        stack.callback(kazoo.close)
        stack.callback(kazoo.stop)
        user = msgspec.json.encode({"version": 1, "config": {"SCRAM-SHA-512": record_of("the-password-of-bob")}})
        await asyncio.to_thread(kazoo.create, f"{chroot}/config/users/bob", user, makepath=True)

        def are_registered() -> bool:
            return (
                len(kazoo.get_children(f"{chroot}/brokers/ids") if kazoo.exists(f"{chroot}/brokers/ids") else []) == 2
            )

        await until(lambda: asyncio.to_thread(are_registered), f"both brokers register: {tmp_path}/1.log says why not")
        yield Served(
            **{kind.lower(): ",".join(f"127.0.0.1:{port}" for port in ports[kind]) for kind in kinds},
            authority=authority,
        )


def write_and_read(settings: Settings, topic: str) -> None:
    """A topic is made, and everything that was acknowledged is read."""
    admin = AdminClient(settings)
    (made,) = admin.create_topics([NewTopic(topic, 2, 2)], request_timeout=DEADLINE_S).values()
    made.result(DEADLINE_S)
    producer = Producer({**settings, "acks": "all", "enable.idempotence": True})
    refused = list[KafkaError]()
    for number in range(RECORDS):
        producer.produce(
            topic, b"%d" % number, on_delivery=lambda error, _: None if error is None else refused.append(error)
        )
    assert producer.flush(DEADLINE_S) == 0
    assert refused == []
    consumer = Consumer({**settings, "group.id": "none", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(2)])
        found = set[int]()
        while len(found) < RECORDS:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, found
            if message.error() is None:
                found.add(int(message.value() or b""))
        assert found == set(range(RECORDS))
    finally:
        consumer.close()


async def test_librdkafka_logs_in_by_scram_and_plain_over_tls(served: Served) -> None:
    for mechanism, user in (("SCRAM-SHA-512", "bob"), ("PLAIN", "ann")):
        settings = served.client(mechanism, user, f"the-password-of-{user}")
        await asyncio.to_thread(write_and_read, settings, f"of-{user}")
    without_tls = {
        **served.client("SCRAM-SHA-512", "bob", "the-password-of-bob"),
        "security.protocol": "SASL_PLAINTEXT",
    }
    await asyncio.to_thread(write_and_read, {**without_tls, "bootstrap.servers": served.sasl_plaintext}, "unencrypted")
    by_tls: Settings = {
        "bootstrap.servers": served.ssl,
        "security.protocol": "SSL",
        "ssl.ca.location": served.authority.trust,
    }
    await asyncio.to_thread(write_and_read, by_tls, "without-login")


async def test_who_has_another_password_or_no_name_is_not_served(served: Served) -> None:
    foreign_brokers = [
        ("PLAIN", "ann", "the-password-of-bob"),
        ("PLAIN", "bob", "the-password-of-bob"),  # known by SCRAM only
        ("SCRAM-SHA-512", "bob", "the-password-of-ann"),
        ("SCRAM-SHA-512", "nobody", "the-password-of-bob"),
        ("SCRAM-SHA-256", "bob", "the-password-of-bob"),  # not enabled
    ]
    for stranger in foreign_brokers:
        errors = list[KafkaError]()
        client = AdminClient({**served.client(*stranger), "error_cb": errors.append})  # type: ignore[dict-item]

        def is_refused(client: AdminClient = client, errors: list[KafkaError] = errors) -> bool:
            client.poll(0)
            return any(error.code() == KafkaError._AUTHENTICATION for error in errors)

        await until(is_refused, f"{stranger} is refused: {errors}")


@pytest.mark.maven
async def test_kafkas_java_client_logs_in_by_scram_over_tls(served: Served, tmp_path: Path) -> None:
    installed = await fetched(JARS, f"tools-{NEWEST}", [("org.apache.kafka", "kafka-tools", NEWEST)])
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={served.authority.trust}\n"
        f'sasl.jaas.config={module} username="bob" password="the-password-of-bob";\n'
    )
    on = ("--bootstrap-server", served.sasl_ssl, "--command-config", str(config))
    shape = ("--partitions", "1", "--replication-factor", "2")
    code, text = await tool(installed, tmp_path, f"{TOOLS}.TopicCommand", *on, "--create", "--topic", "java", *shape)
    assert code == 0, text
    wanted = ("--topic", "java", "--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1")
    how = ("--bootstrap-server", served.sasl_ssl, "--command-config", str(config), "--command-property", "acks=all")
    code, text = await tool(installed, tmp_path, f"{TOOLS}.ProducerPerformance", *wanted, *how)
    assert f"{RECORDS} records sent" in text, text
