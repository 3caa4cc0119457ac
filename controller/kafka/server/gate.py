"""What a client may ask of this listener where brokers have ACLs: allowed or denied as a broker's AclAuthorizer does.

Each request passes before it is served or passed on. Of a request about many resources those that are denied are taken
out, and the answer gets them back with Kafka's code. An API without a rule here is not served. Requests of brokers are
judged without being read.
"""

from __future__ import annotations

import asyncio
import dataclasses
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import structlog

from controller.core.acls import CLUSTER, Authorizer, Caller, Kind, Operation
from controller.core.belief.cluster import Cluster
from controller.core.codes import Code
from controller.kafka.protocol.codec import WireError, topic_id_of
from controller.kafka.protocol.messages import Message, api_name, error, has, versions_of
from controller.kafka.server.listener import API_VERSIONS, Api, Passer

log = structlog.get_logger()

METADATA, FIND_COORDINATOR, INIT_PRODUCER_ID, DESCRIBE_CLUSTER = 3, 10, 22, 60
CREATE_TOPICS, DELETE_TOPICS, CREATE_ACLS, DELETE_ACLS = 19, 20, 30, 31
#: anybody may ask for the versions; groups and transactions are listed as far as they may be seen, and here is none
FREE: Final = frozenset({API_VERSIONS, 16, 66})
#: allowed or denied as a whole, by an operation on the cluster
ON_CLUSTER: Final[Mapping[int, Operation]] = {
    7: Operation.CLUSTER_ACTION,
    56: Operation.CLUSTER_ACTION,
    67: Operation.CLUSTER_ACTION,
    CREATE_ACLS: Operation.ALTER,
    DELETE_ACLS: Operation.ALTER,
    43: Operation.ALTER,
    45: Operation.ALTER,
    51: Operation.ALTER,
    29: Operation.DESCRIBE,
    35: Operation.DESCRIBE,
    46: Operation.DESCRIBE,
    50: Operation.DESCRIBE,
    48: Operation.DESCRIBE_CONFIGS,
    49: Operation.ALTER_CONFIGS,
}
#: those that change something: a line for each that is allowed, too
CHANGES: Final = frozenset({19, 20, 30, 31, 33, 37, 43, 44, 45, 49, 51})
TOPIC_RESOURCE: Final = 2
DENIED: Final = {
    Kind.TOPIC: Code.TOPIC_AUTHORIZATION_FAILED,
    Kind.GROUP: Code.GROUP_AUTHORIZATION_FAILED,
    Kind.CLUSTER: Code.CLUSTER_AUTHORIZATION_FAILED,
    Kind.TRANSACTIONAL_ID: Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
#: as Kafka's clients print it
SAID: Final = {code: code.name.replace("_", " ").capitalize().replace(" id ", " Id ") + "." for code in DENIED.values()}
NAMES_LOGGED_MAX: Final = 10
#: an answer of so many bytes is taken apart beside the event loop
LARGE_BYTES: Final = 64 * 1024
TOPICS_PER_TURN: Final = 500
_NOTHING: Final[list[Any]] = []
_T = TypeVar("_T")


class Question:
    """What one caller may do, now."""

    def __init__(self, authorizer: Authorizer, caller: Caller, cluster: Cluster | None) -> None:
        self.authorizer = authorizer
        self.caller = caller
        self.cluster = cluster

    def may(self, operation: Operation, kind: Kind, name: str) -> bool:
        return self.authorizer.allows(self.caller, operation, kind, name)

    def may_on_cluster(self, operation: Operation) -> bool:
        return self.may(operation, Kind.CLUSTER, CLUSTER)

    def possible(self, kind: Kind, name: str) -> int:
        return self.authorizer.possible(self.caller, kind, name)

    def name_of(self, uuid: Any) -> str | None:
        """Returns the name of a topic by its id."""
        if uuid is None or self.cluster is None:
            return None
        return self.cluster.names_by_id.get(topic_id_of(uuid.bytes))


#: the fields of the answer about a row of a request that is denied; None where it is allowed
Judge = Callable[[Question, Any], dict[str, Any] | None]


class Split(NamedTuple):
    """A request with one answer for each of its rows: the names of both fields, and of an answer's class."""

    rows: str
    answers: str
    answer: str
    judge: Judge


def _denied(code: Code, **fields: Any) -> dict[str, Any]:
    return {"error_code": error(code), "error_message": SAID[code], **fields}


def _creation(asks: Question, row: Any) -> dict[str, Any] | None:
    if asks.may_on_cluster(Operation.CREATE) or asks.may(Operation.CREATE, Kind.TOPIC, row.name):
        return None
    is_shown = asks.may(Operation.DESCRIBE_CONFIGS, Kind.TOPIC, row.name)
    told = Code.NONE if is_shown else Code.TOPIC_AUTHORIZATION_FAILED
    return _denied(Code.TOPIC_AUTHORIZATION_FAILED, name=row.name, topic_config_error_code=int(told))


def _deletion(asks: Question, row: Any) -> dict[str, Any] | None:
    """By name, or by id: then the name is told to nobody who may not see the topic."""
    named = row if isinstance(row, str) else row.name
    uuid = None if isinstance(row, str) else row.topic_id
    name = named or asks.name_of(uuid)
    if name is None or asks.may(Operation.DELETE, Kind.TOPIC, name):
        return None
    is_shown = named or asks.may(Operation.DESCRIBE, Kind.TOPIC, name)
    return _denied(Code.TOPIC_AUTHORIZATION_FAILED, name=name if is_shown else None, topic_id=uuid)


def _growth(asks: Question, row: Any) -> dict[str, Any] | None:
    if asks.may(Operation.ALTER, Kind.TOPIC, row.name):
        return None
    return _denied(Code.TOPIC_AUTHORIZATION_FAILED, name=row.name)


def _configs_by(operation: Operation) -> Judge:
    def judge(asks: Question, row: Any) -> dict[str, Any] | None:
        is_topic = row.resource_type == TOPIC_RESOURCE
        kind, name = (Kind.TOPIC, row.resource_name) if is_topic else (Kind.CLUSTER, CLUSTER)
        if asks.may(operation, kind, name):
            return None
        return _denied(DENIED[kind], resource_type=row.resource_type, resource_name=row.resource_name)

    return judge


SPLITS: Final[Mapping[int, Split]] = {
    CREATE_TOPICS: Split("topics", "topics", "CreatableTopicResult", _creation),
    DELETE_TOPICS: Split("topics", "responses", "DeletableTopicResult", _deletion),
    37: Split("topics", "results", "CreatePartitionsTopicResult", _growth),
    32: Split("resources", "results", "DescribeConfigsResult", _configs_by(Operation.DESCRIBE_CONFIGS)),
    33: Split("resources", "responses", "AlterConfigsResourceResponse", _configs_by(Operation.ALTER_CONFIGS)),
    44: Split("resources", "responses", "AlterConfigsResourceResponse", _configs_by(Operation.ALTER_CONFIGS)),
}
#: every API that has a rule
JUDGED: Final = frozenset({*ON_CLUSTER, *SPLITS, METADATA, FIND_COORDINATOR, INIT_PRODUCER_ID, DESCRIBE_CLUSTER})


class Gate:
    """`authorizer` waits until rules were read. `changed` is awaited after a change of rules that passed here.
    `auto_creates`: brokers make topics that somebody asks for, as far as he may."""

    def __init__(
        self,
        authorizer: Callable[[], Awaitable[Authorizer]],
        cluster: Callable[[], Cluster | None],
        changed: Callable[[], Awaitable[None]],
        *,
        auto_creates: bool,
    ) -> None:
        self._authorizer = authorizer
        self._cluster = cluster
        self._changed = changed
        self._auto_creates = auto_creates

    def within(self, apis: Mapping[int, Api]) -> dict[int, Api]:
        """Returns those of the APIs that can be judged, in such versions."""
        found = {}
        for key, api in apis.items():
            if key in FREE:
                found[key] = api
            elif key in JUDGED:
                first, last = versions_of(key)
                found[key] = Api(max(first, api.first), min(last, api.last), api.flexible_since, api.handler)
        return found

    async def answer(self, caller: Caller, frame: bytes, serve: Passer) -> bytes:
        (key,) = struct.unpack_from(">h", frame)
        if key in FREE:
            return await serve(frame)
        if key not in JUDGED:
            raise WireError(f"API {key} has no rule of access")
        asks = Question(await self._authorizer(), caller, self._cluster())
        if (operation := ON_CLUSTER.get(key)) is not None:
            return await self._on_cluster(asks, operation, key, frame, serve)
        message = Message(frame)
        if key in SPLITS:
            return await self._split(asks, message, frame, serve)
        if key == METADATA:
            return await self._metadata(asks, message, serve)
        if key == FIND_COORDINATOR:
            return await self._find_coordinator(asks, message, frame, serve)
        if key == INIT_PRODUCER_ID:
            return await self._init_producer_id(asks, message, frame, serve)
        return await self._describe_cluster(asks, message, frame, serve)

    async def _on_cluster(self, asks: Question, operation: Operation, key: int, frame: bytes, serve: Passer) -> bytes:
        if not asks.may_on_cluster(operation):
            _log_denied(asks, key, [CLUSTER])
            return _denied_whole(Message(frame))
        if key in CHANGES:
            _log_allowed(asks, key)
        answer = await serve(frame)
        if key in (CREATE_ACLS, DELETE_ACLS):
            await self._changed()
        return answer

    async def _split(self, asks: Question, message: Message, frame: bytes, serve: Passer) -> bytes:
        rule, content = SPLITS[message.key], message.content
        field = rule.rows if has(content, rule.rows) else "topic_names"  # a deletion before version 6
        allowed, refused = [], []
        for row in getattr(content, field):
            denied = rule.judge(asks, row)
            if denied is None:
                allowed.append(row)
            else:
                refused.append(message.row(rule.answer, **denied))
        if refused:
            _log_denied(asks, message.key, [str(getattr(row, "name", row)) for row in refused])
        if allowed and message.key in CHANGES:
            _log_allowed(asks, message.key)
        hidden = _hidden(asks, allowed) if message.key == CREATE_TOPICS else frozenset()
        if not refused and not hidden:
            return await serve(frame)
        if not allowed:
            return message.answer(**{rule.answers: tuple(refused)})
        served = await serve(message.frame_of(dataclasses.replace(content, **{field: tuple(allowed)})))
        found = await _taken_apart(message, served)
        rows = [_without_details(row) if hidden and row.name in hidden else row for row in getattr(found, rule.answers)]
        return message.answer_of(dataclasses.replace(found, **{rule.answers: (*rows, *refused)}))

    async def _metadata(self, asks: Question, message: Message, serve: Passer) -> bytes:
        content, version = message.content, message.version
        is_all = content.topics is None or (version == 0 and not content.topics)
        if is_all and asks.authorizer.is_super(asks.caller):
            wanted, refused = content.topics, _NOTHING
        else:
            wanted, refused = await _all_topics(asks, message) if is_all else self._topics(asks, message)
        if refused:
            _log_denied(asks, METADATA, [str(row.name) for row in refused])
        passed = dataclasses.replace(content, topics=None if wanted is None else tuple(wanted))
        served = await serve(await _in_a_thread(is_all, message.frame_of, passed))
        is_cluster_told = getattr(content, "include_cluster_authorized_operations", False)
        is_told = getattr(content, "include_topic_authorized_operations", False)
        is_nothing_wanted = version == 0 and not wanted and wanted is not content.topics  # it means each topic
        if not (refused or is_cluster_told or is_told or is_nothing_wanted):
            return served
        found = await _taken_apart(message, served)
        rows = () if is_nothing_wanted else found.topics
        if is_told:
            rows = [
                dataclasses.replace(row, topic_authorized_operations=asks.possible(Kind.TOPIC, row.name or ""))
                for row in rows
            ]
        if is_cluster_told:
            found = dataclasses.replace(found, cluster_authorized_operations=_possible_on_cluster(asks))
        return message.answer_of(dataclasses.replace(found, topics=(*rows, *refused)))

    def _topics(self, asks: Question, message: Message) -> tuple[list[Any], list[Any]]:
        """Returns the rows to be asked for, and answers to the others."""
        wanted, refused = [], []
        may_make = getattr(message.content, "allow_auto_topic_creation", True) and self._auto_creates
        known = () if asks.cluster is None else asks.cluster.topics
        for row in message.content.topics:
            uuid = getattr(row, "topic_id", None)
            name = row.name if uuid is None else asks.name_of(uuid)
            if name is None:
                unknown = error(Code.UNKNOWN_TOPIC_ID)
                refused.append(message.row("MetadataResponseTopic", error_code=unknown, name=None, topic_id=uuid))
            elif asks.may(Operation.DESCRIBE, Kind.TOPIC, name) and (
                uuid is not None
                or name in known
                or not may_make
                or asks.may_on_cluster(Operation.CREATE)
                or asks.may(Operation.CREATE, Kind.TOPIC, name)
            ):
                wanted.append(row)
            else:
                refused.append(_unseen(message, None if uuid is not None else name, uuid))
        return wanted, refused

    async def _find_coordinator(self, asks: Question, message: Message, frame: bytes, serve: Passer) -> bytes:
        content = message.content
        kind = Kind.TRANSACTIONAL_ID if getattr(content, "key_type", 0) == 1 else Kind.GROUP
        is_many = has(content, "coordinator_keys")
        keys = content.coordinator_keys if is_many else (content.key,)
        refused = [key for key in keys if not asks.may(Operation.DESCRIBE, kind, key)]
        if not refused:
            return await serve(frame)
        _log_denied(asks, FIND_COORDINATOR, refused)
        nowhere = _denied(DENIED[kind], node_id=-1, host="", port=-1)
        if not is_many:
            return message.answer(**nowhere)
        rows = tuple(message.row("Coordinator", key=key, **nowhere) for key in refused)
        allowed = tuple(key for key in keys if key not in refused)
        if not allowed:
            return message.answer(coordinators=rows)
        served = await serve(message.frame_of(dataclasses.replace(content, coordinator_keys=allowed)))
        found = message.read_answer(served)
        return message.answer_of(dataclasses.replace(found, coordinators=(*found.coordinators, *rows)))

    async def _init_producer_id(self, asks: Question, message: Message, frame: bytes, serve: Passer) -> bytes:
        name = message.content.transactional_id
        if name is not None:
            code = DENIED[Kind.TRANSACTIONAL_ID]
            is_allowed = asks.may(Operation.WRITE, Kind.TRANSACTIONAL_ID, name)
        else:
            code = DENIED[Kind.CLUSTER]
            is_allowed = asks.may_on_cluster(Operation.IDEMPOTENT_WRITE) or asks.authorizer.allows_somewhere(
                asks.caller, Operation.WRITE, Kind.TOPIC
            )
        if is_allowed:
            return await serve(frame)
        _log_denied(asks, INIT_PRODUCER_ID, [CLUSTER if name is None else name])
        return message.answer(error_code=error(code), producer_id=-1, producer_epoch=-1)

    async def _describe_cluster(self, asks: Question, message: Message, frame: bytes, serve: Passer) -> bytes:
        served = await serve(frame)
        if not message.content.include_cluster_authorized_operations:
            return served
        found = await _taken_apart(message, served)
        return message.answer_of(dataclasses.replace(found, cluster_authorized_operations=_possible_on_cluster(asks)))


async def _all_topics(asks: Question, message: Message) -> tuple[list[Any], list[Any]]:
    """Returns a row for each topic that the caller may see: named, so that the answer has no other."""
    seen = []
    for index, name in enumerate(() if asks.cluster is None else sorted(asks.cluster.topics)):
        if index % TOPICS_PER_TURN == 0:
            await asyncio.sleep(0)
        if asks.may(Operation.DESCRIBE, Kind.TOPIC, name):
            seen.append(message.request_row("MetadataRequestTopic", name=name))
    return seen, []


def _unseen(message: Message, name: str | None, uuid: Any) -> Any:
    code = error(Code.TOPIC_AUTHORIZATION_FAILED)
    return message.row("MetadataResponseTopic", error_code=code, name=name, topic_id=uuid)


def _possible_on_cluster(asks: Question) -> int:
    return asks.possible(Kind.CLUSTER, CLUSTER) if asks.may_on_cluster(Operation.DESCRIBE) else 0


def _hidden(asks: Question, rows: Sequence[Any]) -> frozenset[str]:
    """Returns the new topics of which the caller may not see the settings."""
    return frozenset(one.name for one in rows if not asks.may(Operation.DESCRIBE_CONFIGS, Kind.TOPIC, one.name))


def _without_details(row: Any) -> Any:
    if not has(row, "configs"):
        return row
    code = int(Code.TOPIC_AUTHORIZATION_FAILED)
    return dataclasses.replace(row, topic_config_error_code=code, num_partitions=-1, replication_factor=-1, configs=())


def _denied_whole(message: Message) -> bytes:
    """Returns the answer to a request that is denied as a whole, in the form of its API."""
    code = Code.CLUSTER_AUTHORIZATION_FAILED
    denied, content, row = _denied(code), message.content, message.row
    rows: dict[str, Any] = {}
    if message.key == CREATE_ACLS:
        rows = {"results": tuple(row("AclCreationResult", **denied) for _ in content.creations)}
    elif message.key == DELETE_ACLS:
        rows = {"filter_results": tuple(row("DeleteAclsFilterResult", **denied) for _ in content.filters)}
    elif message.key == 43:
        rows = {
            "replica_election_results": tuple(
                row(
                    "ReplicaElectionResult",
                    topic=one.topic,
                    partition_result=tuple(row("PartitionResult", partition_id=n, **denied) for n in one.partitions),
                )
                for one in content.topic_partitions or ()
            )
        }
    elif message.key == 45:
        rows = {
            "responses": tuple(
                row(
                    "ReassignableTopicResponse",
                    name=one.name,
                    partitions=tuple(
                        row("ReassignablePartitionResponse", partition_index=n.partition_index, **denied)
                        for n in one.partitions
                    ),
                )
                for one in content.topics
            )
        }
    elif message.key == 46:
        rows = {
            "topics": tuple(
                row(
                    "OngoingTopicReassignment",
                    name=one.name,
                    partitions=tuple(
                        row("OngoingPartitionReassignment", partition_index=n) for n in one.partition_indexes
                    ),
                )
                for one in content.topics or ()
            )
        }
    elif message.key == 50:
        rows = {"results": tuple(row("DescribeUserScramCredentialsResult", **denied) for _ in content.users or ())}
    elif message.key == 49:
        rows = {
            "entries": tuple(
                row("EntryData", entity=tuple(_entity(message, part) for part in one.entity), **denied)
                for one in content.entries
            )
        }
    elif message.key == 51:
        users = dict.fromkeys(one.name for one in (*content.deletions, *content.upsertions))
        rows = {"results": tuple(row("AlterUserScramCredentialsResult", user=user, **denied) for user in users)}
    return message.answer(**denied, **rows)


def _entity(message: Message, part: Any) -> Any:
    return message.row("EntityData", entity_type=part.entity_type, entity_name=part.entity_name)


async def _taken_apart(message: Message, frame: bytes) -> Any:
    return await _in_a_thread(len(frame) > LARGE_BYTES, message.read_answer, frame)


async def _in_a_thread(is_large: bool, work: Callable[[Any], _T], given: Any) -> _T:
    """Large work is done beside the event loop."""
    return await asyncio.to_thread(work, given) if is_large else work(given)


def _log_denied(asks: Question, key: int, names: Sequence[str]) -> None:
    principal, host = asks.caller
    shown = list(names[:NAMES_LOGGED_MAX])
    log.warning("request.denied", api=api_name(key), principal=principal, host=host, resources=shown, of=len(names))


def _log_allowed(asks: Question, key: int) -> None:
    principal, host = asks.caller
    log.info("request.allowed", api=api_name(key), principal=principal, host=host)
