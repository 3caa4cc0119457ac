"""Who may ask what: our listener answers each request of each principal as a real broker with AclAuthorizer did just
before, while it was the controller itself. Rules that are changed through us apply at once, and are Kafka's znodes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from signal import Signals
from typing import Any, Final, NamedTuple

import pytest
from kazoo.client import KazooClient

from brokerstub.lab.kafka import HOST, KafkaBroker, jars
from brokerstub.lab.ports import free_port
from brokerstub.lab.zookeeper import ZooKeeperServer
from controller.core.acls import Kind, Operation
from controller.kafka.protocol.access import PROTOCOLS, Access, Listener, Sasl
from controller.kafka.protocol.codec import uuid_of
from tests.kafka import kafka_support as kio
from tests.kafka.kafka_world import Client
from tests.real_brokers.cluster import JARS, Cluster, Controller, written
from tests.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.java, pytest.mark.maven, pytest.mark.long]

PASSWORD: Final = "a-password-of-clients"
ANONYMOUS: Final = "ANONYMOUS"
SUPER: Final = "kafka"
#: each with its own kind of rule, but for `ida`, who has none
USERS: Final = (SUPER, "ann", "bob", "cat", "dan", "eve", "fay", "gus", "hal", "ida")
ALLOW, DENY = 3, 2
LITERAL, PREFIXED, ANY = 3, 4, 1
SECOND: Final = timedelta(seconds=1)
TOPICS: Final = ("orders", "public", "team-a")


class Rule(NamedTuple):
    user: str
    kind: Kind
    name: str
    operation: Operation
    permission: int = ALLOW
    pattern: int = LITERAL
    host: str = "*"


CLUSTER: Final = (Kind.CLUSTER, "kafka-cluster")
RULES: Final = (
    Rule("ann", Kind.TOPIC, "orders", Operation.ALL),
    Rule("ann", Kind.GROUP, "readers", Operation.READ),
    Rule("ann", Kind.TRANSACTIONAL_ID, "tx-1", Operation.WRITE),
    Rule("bob", Kind.TOPIC, "team-", Operation.WRITE, pattern=PREFIXED),
    Rule("bob", Kind.TOPIC, "team-", Operation.DELETE, pattern=PREFIXED),
    Rule("bob", Kind.TOPIC, "team-n", Operation.CREATE, pattern=PREFIXED),
    Rule("bob", Kind.TOPIC, "team-", Operation.ALTER_CONFIGS, pattern=PREFIXED),
    Rule("cat", Kind.TOPIC, "*", Operation.DESCRIBE),
    Rule("cat", Kind.TOPIC, "*", Operation.DESCRIBE_CONFIGS),
    Rule("cat", *CLUSTER, Operation.DESCRIBE),
    Rule("cat", *CLUSTER, Operation.CREATE),
    Rule("cat", Kind.GROUP, "*", Operation.DESCRIBE),
    Rule("dan", *CLUSTER, Operation.CLUSTER_ACTION),
    Rule("dan", *CLUSTER, Operation.ALTER),
    Rule("dan", *CLUSTER, Operation.IDEMPOTENT_WRITE),
    Rule("eve", Kind.TOPIC, "*", Operation.ALL),
    Rule("eve", Kind.TOPIC, "ord", Operation.DESCRIBE, DENY, PREFIXED),
    Rule("eve", *CLUSTER, Operation.ALL),
    Rule("eve", *CLUSTER, Operation.ALTER_CONFIGS, DENY),
    Rule("fay", Kind.TOPIC, "*", Operation.ALL, host="10.1.2.3"),
    Rule("fay", *CLUSTER, Operation.ALL, host="10.1.2.3"),
    Rule("fay", Kind.TOPIC, "orders", Operation.READ, host=HOST),
    Rule("gus", Kind.TOPIC, "orders", Operation.WRITE),
    Rule("gus", Kind.TOPIC, "orders", Operation.WRITE, DENY, host=HOST),
    Rule("hal", Kind.TOPIC, "team-a", Operation.ALTER),
    Rule("hal", *CLUSTER, Operation.ALTER_CONFIGS),
    Rule("*", Kind.TOPIC, "public", Operation.READ),
)


class Asked(NamedTuple):
    """A request that changes nothing, whoever asks it."""

    name: str
    version: int
    fields: Mapping[str, Any]

    @property
    def title(self) -> str:
        return f"{self.name} v{self.version} {sorted(self.fields)}"


def a_request(name: str, version: int, **fields: Any) -> Asked:
    return Asked(name, version, fields)


def rows_of(name: str, version: int, kind: str, rows: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    found = getattr(kio.schema(name, version, "request"), kind)
    return tuple(
        found(**{key: value for key, value in row.items() if key in found.__dataclass_fields__}) for row in rows
    )


def requests_about(topic_id: uuid.UUID) -> list[Asked]:
    """All APIs of our listener."""
    unknown = uuid.UUID(int=77)
    named = [{"name": name, "topic_id": None} for name in (*TOPICS, "nope")]
    created = [
        {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": (), "configs": ()}
        for name in ("orders", "team-new", "fresh")
    ]
    grown = [{"name": name, "count": 9, "assignments": None} for name in ("orders", "team-a", "nope")]
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None, "configs": ()}
        for kind, name in ((2, "orders"), (2, "team-a"), (4, "1"))
    ]
    a_filter = {
        "resource_type_filter": 2, "resource_name_filter": "no-such-rule", "pattern_type_filter": LITERAL,
        "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip
    creation = {
        "resource_type": 4, "resource_name": "no-cluster", "resource_pattern_type": LITERAL, "principal": "User:x",
        "host": "*", "operation": 8, "permission_type": ALLOW,
    }  # fmt: skip

    def metadata(version: int, topics: Any, **more: Any) -> Asked:
        rows = None if topics is None else rows_of("metadata", version, "MetadataRequestTopic", topics)
        return a_request("metadata", version, topics=rows, **more)

    quiet, told = {"allow_auto_topic_creation": False}, {"include_topic_authorized_operations": True}
    on_cluster = {"include_cluster_authorized_operations": True}
    elect = rows_of("elect_leaders", 2, "TopicPartitions", [{"topic": "orders", "partitions": (0,)}])
    [cancelled] = rows_of(
        "alter_partition_reassignments", 0, "ReassignablePartition", [{"partition_index": 0, "replicas": None}]
    )
    cancel = rows_of(
        "alter_partition_reassignments", 0, "ReassignableTopic", [{"name": "orders", "partitions": (cancelled,)}]
    )
    listed = rows_of(
        *("list_partition_reassignments", 0, "ListPartitionReassignmentsTopics"),
        [{"name": "orders", "partition_indexes": (0,)}],
    )
    [user] = rows_of("alter_client_quotas", 1, "EntityData", [{"entity_type": "user", "entity_name": "x"}])
    [rate] = rows_of("alter_client_quotas", 1, "OpData", [{"key": "producer_byte_rate", "value": 5.0, "remove": False}])
    deletions = rows_of("alter_user_scram_credentials", 0, "ScramCredentialDeletion", [
        {"name": "nobody", "mechanism": 1}, {"name": "", "mechanism": 1}, {"name": "strange", "mechanism": 9},
    ])  # fmt: skip
    upsertion = {"mechanism": 1, "salt": b"salt", "salted_password": b"salted"}
    upsertions = rows_of("alter_user_scram_credentials", 0, "ScramCredentialUpsertion", [
        {**upsertion, "name": "few", "iterations": 100}, {**upsertion, "name": "many", "iterations": 99_999},
        {**upsertion, "name": "twice", "iterations": 4096}, {**upsertion, "name": "twice", "iterations": 8192},
    ])  # fmt: skip
    quota = rows_of("alter_client_quotas", 1, "EntryData", [{"entity": (user,), "ops": (rate,)}])
    return [
        metadata(12, named, **quiet, include_topic_authorized_operations=False),
        metadata(12, named, **quiet, **told),
        metadata(10, named, **quiet, **told, **on_cluster),
        metadata(8, None, **quiet, **told, **on_cluster),
        metadata(12, None, **quiet, include_topic_authorized_operations=False),
        metadata(1, None),
        metadata(1, []),
        metadata(0, []),
        metadata(0, [{"name": "orders"}]),
        metadata(4, [{"name": "no/topic"}], allow_auto_topic_creation=True),
        metadata(12, [{"name": None, "topic_id": one} for one in (topic_id, unknown)], **quiet, **told),
        a_request("find_coordinator", 4, key_type=0, coordinator_keys=("readers", "others")),
        a_request("find_coordinator", 2, key_type=0, key="readers"),
        a_request("find_coordinator", 4, key_type=1, coordinator_keys=("tx-1", "tx-2")),
        a_request("find_coordinator", 1, key_type=1, key="tx-1"),
        a_request("find_coordinator", 0, key="readers"),
        a_request("init_producer_id", 4, transactional_id=None, transaction_timeout=SECOND),
        a_request("init_producer_id", 1, transactional_id="tx-1", transaction_timeout=SECOND),
        *(
            a_request("create_topics", version, topics=rows_of("create_topics", version, "CreatableTopic", created),
                      timeout=SECOND, validate_only=True)
            for version in (4, 5, 7)
        ),
        a_request("delete_topics", 5, topic_names=("nope", "team-nope"), timeout=SECOND),
        a_request("delete_topics", 6, timeout=SECOND, topics=rows_of("delete_topics", 6, "DeleteTopicState", [
            {"name": "team-nope", "topic_id": None}, {"name": "nope", "topic_id": None},
            {"name": None, "topic_id": unknown},
        ])),
        *(
            a_request("create_partitions", version, timeout=SECOND, validate_only=True,
                      topics=rows_of("create_partitions", version, "CreatePartitionsTopic", grown))
            for version in (1, 3)
        ),
        a_request("describe_configs", 4, include_synonyms=False, include_documentation=False,
                  resources=rows_of("describe_configs", 4, "DescribeConfigsResource", resources)),
        a_request("describe_configs", 1, include_synonyms=False,
                  resources=rows_of("describe_configs", 1, "DescribeConfigsResource", resources[2:])),
        a_request("alter_configs", 2, validate_only=True,
                  resources=rows_of("alter_configs", 2, "AlterConfigsResource", resources)),
        a_request("incremental_alter_configs", 1, validate_only=True,
                  resources=rows_of("incremental_alter_configs", 1, "AlterConfigsResource", resources)),
        a_request("elect_leaders", 2, election_type=0, topic_partitions=elect, timeout=SECOND),
        a_request("elect_leaders", 0, timeout=SECOND, topic_partitions=rows_of(
            "elect_leaders", 0, "TopicPartitions", [{"topic": "orders", "partitions": (0,)}])),
        a_request("alter_partition_reassignments", 0, timeout=SECOND, topics=cancel),
        a_request("list_partition_reassignments", 0, timeout=SECOND, topics=None),
        a_request("list_partition_reassignments", 0, timeout=SECOND, topics=listed),
        *(
            a_request("describe_acls", version, **{
                key: value for key, value in {**a_filter, "resource_name_filter": None}.items()
                if version or key != "pattern_type_filter"
            })
            for version in (1, 3)
        ),
        a_request("create_acls", 3, creations=rows_of("create_acls", 3, "AclCreation", [creation])),
        a_request("delete_acls", 3, filters=rows_of("delete_acls", 3, "DeleteAclsFilter", [a_filter])),
        a_request("describe_client_quotas", 1, components=(), strict=False),
        a_request("alter_client_quotas", 1, entries=quota, validate_only=True),
        # for all users a real broker never answers those whom it denies: it fails while it writes the answer
        a_request("describe_user_scram_credentials", 0,
                  users=rows_of("describe_user_scram_credentials", 0, "UserName", [{"name": "nobody"}])),
        a_request("alter_user_scram_credentials", 0, deletions=deletions, upsertions=upsertions),
        a_request("describe_cluster", 1, include_cluster_authorized_operations=True, endpoint_type=1),
        a_request("describe_cluster", 0, include_cluster_authorized_operations=False),
        a_request("alter_partition", 3, broker_id=1, broker_epoch=-7, topics=()),
        a_request("allocate_producer_ids", 0, broker_id=1, broker_epoch=-7),
        a_request("controlled_shutdown", 3, broker_id=1, broker_epoch=-7),
        a_request("describe_log_dirs", 4, topics=()),
        a_request("list_groups", 4, states_filter=()),
        a_request("list_transactions", 0, state_filters=(), producer_id_filters=()),
    ]  # fmt: skip


#: what an answer says of access: names with their codes, and what else may be done
KEPT: Final = ("error_code", "authorized_operations")
NAMED: Final = frozenset({"name", "topic", "key", "user", "resource_name", "entity_name", "principal", "topic_id"})
#: about the brokers' state, and not about access
LEFT_OUT: Final = frozenset({"partitions", "brokers", "configs", "groups", "transaction_states", "cluster_id"})
#: a coordinator is being found or loaded: whoever is told so was allowed to ask
BUSY: Final = frozenset({14, 15, 16, 51})


def shape_of(value: Any) -> Any:
    if isinstance(value, tuple):
        return sorted((one for one in map(shape_of, value) if one not in ((), {}, [], None)), key=repr)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = {}
        for field in dataclasses.fields(value):
            content = getattr(value, field.name)
            if field.name.endswith(KEPT):
                found[field.name] = 0 if int(content) in BUSY else int(content)
            elif field.name in NAMED:
                found[field.name] = str(content)
            elif isinstance(content, tuple) and field.name not in LEFT_OUT and (shape := shape_of(content)):
                found[field.name] = shape
        return found
    return None


@asynccontextmanager
async def a_client(user: str, ports: Mapping[str, int]) -> AsyncIterator[Client]:
    is_anonymous = user == ANONYMOUS
    protocol = "PLAINTEXT" if is_anonymous else "SASL_PLAINTEXT"
    access = Access(sasl=None if is_anonymous else Sasl("PLAIN", user, PASSWORD))
    opened = await access.open(Listener(protocol, HOST, ports[protocol], PROTOCOLS[protocol]))
    try:
        yield Client(opened.reader, opened.writer)
    finally:
        opened.writer.close()


async def ask(client: Client, one: Asked) -> Any:
    kind = "".join(part.capitalize() for part in one.name.split("_")) + "Request"
    async with asyncio.timeout(DEADLINE_S):
        return await client.ask(one.name, one.version, kind, **one.fields)


async def answers(requests: Sequence[Asked], ports: Mapping[str, int]) -> dict[tuple[str, int, str], Any]:
    """By principal and request: what each is told."""
    found = {}
    for user in (*USERS, ANONYMOUS):
        async with a_client(user, ports) as client:
            for index, one in enumerate(requests):
                found[user, index, one.title] = shape_of(await ask(client, one))
    return found


def differences(theirs: Mapping[Any, Any], ours: Mapping[Any, Any]) -> dict[Any, Any]:
    assert theirs.keys() == ours.keys()
    return {key: {"theirs": theirs[key], "ours": ours[key]} for key in theirs if theirs[key] != ours[key]}


async def create_rules(client: Client) -> None:
    creations = [
        {
            "resource_type": int(one.kind), "resource_name": one.name, "resource_pattern_type": one.pattern,
            "principal": f"User:{one.user}", "host": one.host, "operation": int(one.operation),
            "permission_type": one.permission,
        }
        for one in RULES
    ]  # fmt: skip
    rows = rows_of("create_acls", 3, "AclCreation", creations)
    answer = await ask(client, a_request("create_acls", 3, creations=rows))
    assert {int(one.error_code) for one in answer.results} == {0}, answer


async def delete_rules(client: Client) -> None:
    every = {
        "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": ANY,
        "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip
    rows = rows_of("delete_acls", 3, "DeleteAclsFilter", [every])
    answer = await ask(client, a_request("delete_acls", 3, filters=rows))
    assert len(answer.filter_results[0].matching_acls) == len(RULES), answer


def rules_in(cluster: Cluster) -> dict[str, Any]:
    """The znodes of all rules; within one, rules have no order."""
    found, pending = {}, ["/kafka/kafka-acl", "/kafka/kafka-acl-extended"]
    while pending:
        path = pending.pop()
        pending += [f"{path}/{child}" for child in cluster.kazoo.get_children(path)]
        content = cluster.read(path.removeprefix("/kafka"))
        if content:
            found[path] = {**content, "acls": sorted(content["acls"], key=repr)}
    return found


@asynccontextmanager
async def a_guarded_cluster(directory: Path, *, is_open: bool) -> AsyncIterator[tuple[Cluster, dict[str, int]]]:
    """One broker with AclAuthorizer, which is its own controller, and one of ours on standby; the broker's ports."""
    zookeeper = ZooKeeperServer(directory / "zookeeper", free_port(), fsync=False)
    await zookeeper.start()
    kazoo = KazooClient(hosts=zookeeper.address)
    kazoo.start()
    cluster = Cluster(directory, zookeeper, kazoo, await jars(JARS))
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{module} required username="{SUPER}" password="{PASSWORD}" {users};'
    mechanism = {"sasl.mechanism.inter.broker.protocol": "PLAIN", "sasl.enabled.mechanisms": "PLAIN"}
    guarded = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{SUPER}",
        "allow.everyone.if.no.acl.found": str(is_open).lower(),
    }
    theirs = {"SASL_PLAINTEXT": free_port(), "PLAINTEXT": free_port()}
    broker = KafkaBroker(
        *(1, theirs["SASL_PLAINTEXT"], cluster.zookeeper, directory / "broker-1", cluster.jars),
        security="SASL_PLAINTEXT",
        properties={
            **{"listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in theirs.items())},
            **{"offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1"},
            **{"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"},
            **{"transaction.state.log.min.isr": "1"},
            **mechanism,
            **guarded,
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        },
    )
    cluster.brokers[1] = broker
    try:
        await broker.start()
        await until(lambda: cluster.read("/controller"), "Kafka's own controller")
        config = written(directory / "controller.properties", {**mechanism, **guarded, "sasl.jaas.config": jaas})
        more = ["--config", str(config), "--listener-name", "SASL_PLAINTEXT"]
        cluster.controllers = [
            Controller(directory, cluster.zookeeper, 100, more, f"kafka://{HOST}:{free_port()},sasl_plaintext")
        ]
        yield cluster, theirs
    finally:
        for controller in cluster.controllers:
            await controller.end(Signals.SIGKILL)
        await broker.kill()
        kazoo.stop()
        kazoo.close()
        await zookeeper.stop()


async def has_made_topics(client: Client) -> bool:
    """Its controller does not know the broker itself from the first moment on."""
    rows = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
        for name in TOPICS
    ]
    topics = rows_of("create_topics", 7, "CreatableTopic", rows)
    made = await ask(client, a_request("create_topics", 7, topics=topics, timeout=10 * SECOND, validate_only=False))
    return {int(one.error_code) for one in made.topics} == {0}


async def has_coordinators(client: Client) -> bool:
    """Whether the topics that brokers make for themselves are there."""
    found = [
        await ask(client, a_request("find_coordinator", 4, key_type=kind, coordinator_keys=("x",))) for kind in (0, 1)
    ]
    return {int(one.coordinators[0].error_code) for one in found} == {0}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "open"])
async def test_each_principal_is_told_what_a_real_broker_tells_it(is_open: bool, tmp_path: Path) -> None:
    async with a_guarded_cluster(tmp_path, is_open=is_open) as (cluster, theirs):
        async with a_client(SUPER, theirs) as kafka:
            await until(lambda: has_made_topics(kafka), "topics are made")
            await until(lambda: has_coordinators(kafka), "coordinators are found")
            topic_id = uuid.UUID(bytes=uuid_of(cluster.read("/brokers/topics/orders")["topic_id"]))
            requests = requests_about(topic_id)
            by_kafka_without = await answers(requests, theirs)
            await create_rules(kafka)
            znodes = rules_in(cluster)
            by_kafka = await answers(requests, theirs)
        await cluster.controller.start()
        await cluster.controller.take_over()
        ours = cluster.controller.ports
        assert differences(by_kafka, await answers(requests, ours)) == {}
        async with a_client(SUPER, ours) as klamm:
            await delete_rules(klamm)
            assert differences(by_kafka_without, await answers(requests, ours)) == {}
            await create_rules(klamm)
            assert rules_in(cluster) == znodes
            assert differences(by_kafka, await answers(requests, ours)) == {}
        said = cluster.controller.log_text()
        assert "request.denied" in said
        assert PASSWORD not in said
