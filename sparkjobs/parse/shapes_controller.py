"""The controller's lines in state-change.log, Kafka 0.8 to 3.9: its machines, its requests and their answers.

Each shape: its id, its event, how it reads after the prefix (`[Controller id=1 epoch=2] ` and its kin). The first
shape of the catalogue whose beginning fits is the one; if its pattern then does not fit, the line is unknown. Data.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from sparkjobs.parse.patterns import Shape, shape_for

_c = partial(shape_for, role="controller")
_TO = r"become-(?<to_state>leader|follower)"

CONTROLLER_SHAPES: Final[tuple[Shape, ...]] = (
    _c(
        "partition.changed",
        "partition_changed",
        pattern=r"changed partition {T} (?:state )?{FROM_TO}"
        r"(?: with (?:state {STATE}|leader (?<leader>-?\d+)|assigned replicas {LIST}))?",
    ),
    _c(
        "replica.changed",
        "replica_changed",
        pattern=r"changed state of replica (?<peer_broker>\d+) for partition {T} "
        r"(?:from (?<from_state>\w+) )?to (?<to_state>\w+)",
    ),
    _c(
        "partition.shrunk",
        "isr_changed",
        reason="replica offline",
        mark=" after removing replica ",
        pattern=r"partition {T} state changed to {STATE_AND_EPOCH} after removing replica (?<peer_broker>\d+) from the "
        r"ISR as part of transition to OfflineReplica",
    ),
    _c("partition.failed", "partition_change_failed", pattern=r"failed to change state for partition {T} {FROM_TO}.*"),
    _c(
        "replica.failed",
        "replica_change_failed",
        pattern=r"initiated state change of replica (?<peer_broker>\d+) for partition {T} "
        r"(?:from (?<from_state>\w+) )?to (?<to_state>\w+) failed.*",
    ),
    _c(
        "partition.failed.old",
        "partition_change_failed",
        pattern=r"initiated state change for partition {T} {FROM_TO} failed.*",
    ),
    _c(
        "replica.failed.new",
        "replica_change_failed",
        pattern=r"failed to change state of replica (?<peer_broker>\d+) for partition {T} {FROM_TO}.*",
    ),
    _c("election.started", "election_started", pattern=r"started leader election for partition {T}"),
    _c("election.done", "leader_elected", pattern=r"elected leader (?<leader>\d+) for [Oo]ffline partition {T}"),
    _c(
        "election.failed",
        "election_failed",
        pattern=r"encountered error while electing leader for partition {T} due to: (?<reason>.*)",
    ),
    _c(
        "send.leader",
        "request_sent",
        api="LeaderAndIsr",
        pattern=rf"sending {_TO} LeaderAndIsr request (?:{{ASKED}} )?(?:with {{ID}} )?to broker (?<peer_broker>-?\d+) "
        r"for partition {T}",
    ),
    _c(
        "send.leader.batch",
        "request_sent",
        api="LeaderAndIsr",
        pattern=r"sending LeaderAndIsr request to broker (?<peer_broker>\d+) with (?<n_partitions>\d+) "
        r"become-leader and "
        r"(?<n_more>\d+) become-follower partitions",
    ),
    _c(
        "send.metadata.batch",
        "request_sent",
        api="UpdateMetadata",
        anchor="sending updatemetadata request to broker",
        pattern=r"sending UpdateMetadata request to brokers? (?:[A-Z]\w*)?\(?(?<replicas>{INTS})\)? "
        r"for (?<n_partitions>\d+) partitions.*",
    ),
    _c(
        "send.metadata",
        "request_sent",
        api="UpdateMetadata",
        pattern=r"sending UpdateMetadata request (?:{ASKED} )?(?:with {ID} )?to (?:brokers {BROKERS}|"
        r"broker (?<peer_broker>\d+)) for partition {T}",
    ),
    _c(
        "send.stop.batch",
        "request_sent",
        api="StopReplica",
        pattern=r"sending StopReplica request for (?<n_partitions>\d+) replicas to broker (?<peer_broker>\d+).*",
    ),
    _c(
        "send.stop",
        "request_sent",
        api="StopReplica",
        pattern=r"sending StopReplica request StopReplicaPartitionState\(partitionIndex=\d+, "
        r"leaderEpoch=(?<leader_epoch>-?\d+), deletePartition=\w+\) to broker (?<peer_broker>\d+) "
        r"for partition {T}",
    ),
    _c(
        "send.stop.old",
        "request_sent",
        api="StopReplica",
        anchor="sending stop",
        pattern=r"sending stop ?[rR]eplica request (?<reason>.*)",
    ),
    _c(
        "sent.reassigned",
        "request_sent",
        api="LeaderAndIsr",
        anchor="sent leaderandisr request",
        pattern=r"sent LeaderAndIsr request {STATE_AND_EPOCH} with new (?:replica assignment|assigned replica list) "
        r"(?:ReplicaAssignment\()?.* to leader (?<peer_broker>-?\d+) for partition being reassigned {T}",
    ),
    _c(
        "response.old",
        "response_received",
        pattern=r"received response correlationId (?<correlation_id>\d+) for a request sent to broker "
        r"(?:{PEER}|(?<peer_broker>\d+))",
    ),
    *(
        _c(
            f"response.{api}",
            "response_received",
            anchor=f"received response {api}response(",
            pattern=rf"received response (?<api>{api})Response\((?<correlation_id>\d+),.* for a request sent to broker "
            r"{PEER}",
        )
        for api in ("LeaderAndIsr", "UpdateMetadata", "StopReplica")
    ),
    _c(
        "response.first",
        "response_received",
        anchor="received response {",
        mark=",partitions=[{topic=",
        pattern=r"received response \{error_code=(?<error>-?\d+),partitions=\[\{topic=(?<topic>[\w.-]+),"
        r"partition=(?<partition>\d+),.* for (?:a request|request (?<api>\w+) with correlation id "
        r"(?<correlation_id>\d+)) sent to broker {PEER}",
    ),
    _c(
        "response",
        "response_received",
        anchor="received response",
        pattern=r"received response \S*?[{(]?(?:error_?[cC]ode=(?<error>-?\d+))?.*? for (?:a request|request "
        r"(?<api>\w+) with correlation id (?<correlation_id>\d+)) sent to broker {PEER}",
    ),
    _c(
        "request.refused",
        "request_failed",
        pattern=r"received error (?<error>\w+).* in (?<api>\w+) response.*? from broker {PEER}.*",
        anchor="received error",
    ),
    _c(
        "replicas.offline",
        "replicas_offline",
        pattern=r"mark replicas (?<reason>.*) on broker (?<peer_broker>\d+) as offline",
    ),
)
