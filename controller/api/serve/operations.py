"""The table of all operations that a broker process serves: method, path, types of requests and answers.

`/openapi.json` is made of it. It repeats the routes of the application, and a test holds the two together. The types
are those that parse the bodies and make the answers: there is no second description of them.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from controller.api import bodies
from controller.api.counts import Verdict
from controller.api.stream import events
from controller.api.v1 import brokers, configs, insights, matrix, partition_requests, records, reports, writes
from controller.core.questions.explain import Explanation
from controller.core.questions.whatif import WhatIf
from controller.wire import bodies as wire_bodies

JSON: Final = "application/json"
HTML: Final = "text/html"


class Operation(msgspec.Struct, frozen=True):
    """One method of one path."""

    method: str
    path: str
    summary: str
    #: the answer's type; None: the content type is `media`
    answer: Any = None
    body: Any = None
    query: Any = None
    #: the answer is a page of `answer`s
    is_page: bool = False
    #: served by the active controller only
    is_led: bool = False
    #: the good ones; all answer alike
    statuses: tuple[int, ...] = (200,)
    #: the refusals of its own, beside those that any may meet
    refusals: tuple[int, ...] = ()
    media: str = JSON
    headers: tuple[str, ...] = ()


def _read(path: str, summary: str, answer: Any = None, **more: Any) -> Operation:
    return Operation("GET", path, summary, answer, **more)


def _led(method: str, path: str, summary: str, answer: Any = None, body: Any = None, **more: Any) -> Operation:
    return Operation(method, path, summary, answer, body, is_led=True, **more)


def _rpc(path: str, summary: str, body: Any, answer: Any, *headers: str) -> Operation:
    return Operation("POST", path, summary, answer, body, headers=headers)


_PROCESS: Final = (
    _read("/livez", "Whether this process answers", Verdict),
    _read("/readyz", "Whether this broker is registered and was told of the cluster", Verdict, statuses=(200, 503)),
    _read("/healthz/cluster", "green, yellow, red or unknown, with every reason", Verdict, statuses=(200, 503)),
    _read("/metrics", "Prometheus exposition: Kafka's controller, kafka_exporter's family, ours", media="text/plain"),
    _read("/openapi.json", "This description"),
    _read("/docs", "This description as a page", media=HTML),
    _read("/docs/{name}", "What that page is made of", media="*/*"),
    _read("/", "The dashboard", media=HTML),
    _read("/dashboard/{name}", "What the dashboard is made of", media="*/*"),
)
_TOLD: Final = (
    _read("/v1/cluster", "Id, controller and counts", bodies.ClusterBody),
    _read("/v1/controller", "Who is controller, since when", bodies.ControllerBody),
    _read("/v1/brokers", "All brokers; those that are gone stay listed", bodies.BrokerBody, is_page=True),
    _read("/v1/brokers/{id}", "One broker", bodies.BrokerBody),
    _read("/v1/topics", "Topics in numbers", bodies.TopicBody, is_page=True, query=bodies.PageQuery),
    _read("/v1/topics/{topic}", "One topic in numbers", bodies.TopicBody),
    _read(
        "/v1/topics/{topic}/partitions",
        "A topic's partitions",
        bodies.PartitionBody,
        is_page=True,
        query=bodies.PageQuery,
    ),
    _read(
        "/v1/partitions",
        "Partitions, by state, topic or broker",
        bodies.PartitionBody,
        is_page=True,
        query=bodies.PartitionsQuery,
    ),
    _read(
        "/v1/matrix",
        "A row for each topic, its partitions packed; answers to If-None-Match",
        matrix.MatrixRow,
        is_page=True,
        query=bodies.PageQuery,
    ),
    _read(
        "/v1/partitions/{topic}/{partition}/log",
        "How far the logs of a partition's replicas are, and what was truncated",
        records.PartitionLogs,
    ),
    _read("/v1/reports/latest", "The page that `klamm report` wrote last", media=HTML, refusals=(404,)),
    _read("/v1/aggregates", "What a stream of the logs came to so far, if one is kept", reports.AggregatesBody),
    _read("/v1/lab", "The processes of the local lab, if there is one"),
    Operation("POST", "/v1/lab/{verb}", "An order to the local lab: kill, stop, start, freeze, …", refusals=(409, 504)),
)
_LED_READS: Final = (
    _led("GET", "/v1/controller/history", "Terms of the past", insights.TermBody, is_page=True),
    _led("GET", "/v1/deletions", "Deletions under way", writes.DeletionBody, is_page=True, query=bodies.PageQuery),
    _led(
        "GET",
        "/v1/reassignments",
        "Reassignments under way",
        partition_requests.ReassigningBody,
        is_page=True,
        query=bodies.PageQuery,
    ),
    _led("GET", "/v1/brokers/{broker}/drain", "How far a drain is", brokers.DrainBody),
    _led("GET", "/v1/partitions/{topic}/{partition}/story", "Who led when and why, who was eligible", Explanation),
    _led("POST", "/v1/what-if", "What would happen if brokers died; nothing is written", WhatIf, insights.WhatIfBody),
    _led(
        "GET",
        "/v1/events",
        "The state-change log, live (Server-Sent Events)",
        query=events.EventsQuery,
        media="text/event-stream",
        headers=(events.LAST_EVENT_ID,),
    ),
)
_WRITES: Final = (
    _led("POST", "/v1/topics", "Create a topic", bodies.TopicBody, bodies.CreateTopicBody, statuses=(201, 200)),
    _led(
        "DELETE",
        "/v1/topics/{topic}",
        "Delete a topic; 202 while that goes on",
        writes.DeletionBody,
        query=writes.DeleteQuery,
        statuses=(202, 200),
    ),
    _led(
        "POST",
        "/v1/topics/{topic}/partitions",
        "Grow a topic to so many partitions",
        bodies.TopicBody,
        writes.GrowTopicBody,
        statuses=(201, 200),
    ),
    _led(
        "POST",
        "/v1/reassignments",
        "Reassign partitions: Kafka's JSON",
        partition_requests.OutcomesBody,
        partition_requests.ReassignBody,
    ),
    _led(
        "DELETE",
        "/v1/reassignments/{topic}/{partition}",
        "Cancel a reassignment",
        partition_requests.OutcomeBody,
    ),
    _led(
        "POST",
        "/v1/elections",
        "Elect preferred or unclean leaders",
        partition_requests.OutcomesBody,
        partition_requests.ElectBody,
    ),
    _led("DELETE", "/v1/brokers/{id}", "Forget a broker that is gone and hosts nothing", brokers.ForgottenBody),
    _led(
        "POST", "/v1/brokers/{broker}/drain", "Move leaderships away from a broker", brokers.DrainBody, bodies.Nothing
    ),
    _led("DELETE", "/v1/brokers/{broker}/drain", "Let it lead again", brokers.DrainBody),
)
_CONFIGS: Final = tuple(
    operation
    for path, whose in (
        ("/v1/topics/{topic}/config", "a topic"),
        ("/v1/brokers/{broker}/config", "a broker"),
        ("/v1/cluster/config", "the whole cluster"),
    )
    for operation in (
        _led("GET", path, f"Values in force for {whose}, and where each comes from", configs.ConfigBody),
        _led("PATCH", path, f"Change values of {whose}; null removes one", configs.ConfigBody, configs.PatchBody),
    )
)
_BY_CONTROLLER: Final = (
    wire_bodies.CONTROLLER_ID,
    wire_bodies.CONTROLLER_EPOCH,
    wire_bodies.BROKER_EPOCH,
    wire_bodies.EVENT_ID,
)
#: served by the broker itself, beside the API
BROKER_RPCS: Final = (
    _rpc(wire_bodies.LEADER_AND_ISR, "Lead and follow", wire_bodies.StatesRequest, wire_bodies.Answer, *_BY_CONTROLLER),
    _rpc(
        wire_bodies.UPDATE_METADATA, "Know the cluster", wire_bodies.StatesRequest, wire_bodies.Answer, *_BY_CONTROLLER
    ),
    _rpc(
        wire_bodies.STOP_REPLICA, "Stop replicas", wire_bodies.StopReplicaRequest, wire_bodies.Answer, *_BY_CONTROLLER
    ),
    _rpc(
        wire_bodies.DESCRIBE_TOPICS,
        "What the broker knows of topics: their ids and leader epochs",
        wire_bodies.DescribeTopicsRequest,
        wire_bodies.DescribeTopicsAnswer,
        *_BY_CONTROLLER,
    ),
    _rpc(
        wire_bodies.DESCRIBE_LOG,
        "How far a broker's log of a partition is",
        wire_bodies.DescribeLogRequest,
        wire_bodies.DescribeLogAnswer,
        wire_bodies.SENDER,
    ),
    _rpc(
        wire_bodies.FETCH,
        "A follower is in sync",
        wire_bodies.FetchRequest,
        wire_bodies.FetchAnswer,
        wire_bodies.SENDER,
    ),
)
_CONTROLLER_RPCS: Final = (
    _rpc(
        wire_bodies.ALTER_PARTITION,
        "A leader asks for an ISR",
        wire_bodies.AlterPartitionRequest,
        wire_bodies.AlterPartitionAnswer,
        wire_bodies.SENDER,
    ),
    _rpc(
        wire_bodies.CONTROLLED_SHUTDOWN,
        "A broker that stops hands over",
        bodies.Nothing,
        wire_bodies.ControlledShutdownAnswer,
        wire_bodies.SENDER,
    ),
    _rpc(
        wire_bodies.PRODUCER_IDS,
        "A broker needs ids for idempotent producers",
        bodies.Nothing,
        wire_bodies.ProducerIdsAnswer,
        wire_bodies.SENDER,
    ),
)
OPERATIONS: Final = (*_PROCESS, *_TOLD, *_LED_READS, *_WRITES, *_CONFIGS, *_CONTROLLER_RPCS, *BROKER_RPCS)
