"""Lines of many versions of Kafka, and the meaning of each: the columns that tests hold every reading to."""

from __future__ import annotations

import random
from typing import Any, Final

from sparkjobs.parse.layouts import STOCK
from sparkjobs.tables.silver import BronzeFile
from tests.spark.lines_kraft import KRAFT
from tests.spark.lines_older import OLDER

TS: Final = "2026-11-18 07:49:10,504"
TS_MS: Final = 1_794_988_150_504


def a_file(layout: str | None = STOCK, **given: Any) -> BronzeFile:
    """Everything else is said by the line."""
    known = {
        "file_id": "f" * 64,
        "cluster": "test",
        "paths": ("state-change.log",),
        "size_bytes": 0,
        "kind": "state-change",
        "tz": "UTC",
        "broker": 9,
        "lines": 1,
        "is_whole": True,
        "status": "read",
    }
    return BronzeFile(layout=layout, **{**known, **given})


#: message, logger, expected columns
MESSAGES: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    (
        "Controller 0 epoch 4 changed partition [my.topic-2,0] state from NotExists to New with assigned replicas 1,2",
        "state.change.logger",
        {
            **{"event": "partition_changed", "role": "controller", "broker": 0, "controller": 0, "controller_epoch": 4},
            **{"topic": "my.topic-2", "partition": 0, "replicas": (1, 2)},
            **{"from_state": "NonExistentPartition", "to_state": "NewPartition"},
        },
    ),
    (
        "[Controller id=1 epoch=3] Changed partition a-1-7 state from OnlinePartition to OfflinePartition",
        "state.change.logger",
        {"event": "partition_changed", "topic": "a-1", "partition": 7, "to_state": "OfflinePartition", "leader": None},
    ),
    (
        "[Controller id=2 epoch=7] Changed partition t-3 from OfflinePartition to OnlinePartition with "
        "state LeaderAndIsr("
        "leader=2, leaderEpoch=4, isrWithBrokerEpoch=List(BrokerState(brokerId=2, brokerEpoch=-1), "
        "BrokerState(brokerId=13, "
        "brokerEpoch=88)), leaderRecoveryState=RECOVERED, partitionEpoch=5)",
        "state.change.logger",
        {
            **{"leader": 2, "leader_epoch": 4, "isr": (2, 13), "recovery": "RECOVERED", "version": 5},
            **{"controller_epoch": 7, "broker": 2},
        },
    ),
    (
        "[Controller id=2 epoch=7] Changed partition t-3 from NewPartition to OnlinePartition with state "
        "LeaderAndIsr(leader=1, leaderEpoch=0, isr=List(1, 2), zkVersion=0)",
        "state.change.logger",
        {"leader": 1, "leader_epoch": 0, "isr": (1, 2), "version": 0, "recovery": None},
    ),
    (
        "Controller 5 epoch 2 changed partition [t,1] from OfflinePartition to OnlinePartition with leader 3",
        "state.change.logger",
        {"event": "partition_changed", "leader": 3, "isr": None, "broker": 5},
    ),
    (
        "[Controller id=2 epoch=7] Partition t9-16 state changed to (Leader:-1,ISR:2,LeaderRecoveryState:RECOVERED,"
        "LeaderEpoch:3,ZkVersion:4,ControllerEpoch:7) after removing replica 1 from the ISR as part of transition to "
        "OfflineReplica",
        "state.change.logger",
        {"event": "isr_changed", "leader": -1, "isr": (2,), "leader_epoch": 3, "version": 4, "peer_broker": 1},
    ),
    (
        "Broker 2 received LeaderAndIsr request (LeaderAndIsrInfo:(Leader:1,ISR:1,2,LeaderEpoch:3,ControllerEpoch:4),"
        "ReplicationFactor:2),AllReplicas:1,2) correlation id 8 from controller 0 epoch 4 for partition [t,1]",
        "state.change.logger",
        {
            **{"event": "request_received", "role": "broker", "broker": 2, "controller": 0, "controller_epoch": 4},
            **{
                "leader": 1,
                "isr": (1, 2),
                "replicas": (1, 2),
                "correlation_id": 8,
                "topic": "t",
                "api": "LeaderAndIsr",
            },
        },
    ),
    (
        "[Broker id=3] Received LeaderAndIsr request PartitionState(controllerEpoch=1, leader=0, "
        "leaderEpoch=5, isr=0,1, "
        "zkVersion=2, replicas=0,1, isNew=true) correlation id 1 from controller 0 epoch 1 for partition a.b-0",
        "state.change.logger",
        {"event": "request_received", "leader": 0, "leader_epoch": 5, "isr": (0, 1), "version": 2, "topic": "a.b"},
    ),
    (
        "[Broker id=3] Received LeaderAndIsr request LeaderAndIsrPartitionState(topicName='t', partitionIndex=4, "
        "controllerEpoch=1, leader=3, leaderEpoch=0, isr=[3, 2], partitionEpoch=0, replicas=[3, 2], "
        "addingReplicas=[7], "
        "removingReplicas=[], isNew=true, leaderRecoveryState=1) correlation id 1 from controller 2 epoch 1",
        "state.change.logger",
        {"topic": "t", "partition": 4, "added": (7,), "removed": None, "recovery": "RECOVERING", "isr": (3, 2)},
    ),
    (
        "[Broker id=2] Cached leader info UpdateMetadataPartitionState(topicName='t', partitionIndex=0, "
        "controllerEpoch=1, "
        "leader=-2, leaderEpoch=0, isr=[3, 2], zkVersion=0, replicas=[3, 2], offlineReplicas=[1]) for partition t-0 in "
        "response to UpdateMetadata request sent by controller 2 epoch 6 with correlation id 3",
        "state.change.logger",
        {"event": "metadata_cached", "leader": -2, "removed": (1,), "controller": 2, "controller_epoch": 6},
    ),
    (
        "[Controller id=2 epoch=1] Received response UpdateMetadataResponseData(errorCode=0) for "
        "request UPDATE_METADATA "
        "with correlation id 9 sent to broker 127.0.0.1:24012 (id: 2 rack: r0)",
        "state.change.logger",
        {"event": "response_received", "api": "UpdateMetadata", "correlation_id": 9, "peer_broker": 2, "error": None},
    ),
    (
        "[Controller id=2 epoch=1] Received response {error_code=11} for request LEADER_AND_ISR with "
        "correlation id 4 sent "
        "to broker h:9092 (id: 5 rack: null)",
        "state.change.logger",
        {"error": "11", "api": "LeaderAndIsr", "peer_broker": 5},
    ),
    (
        "Controller 0 epoch 4 received response correlationId 12 for a request sent to broker 3",
        "state.change.logger",
        {"event": "response_received", "api": None, "correlation_id": 12, "peer_broker": 3, "controller_epoch": 4},
    ),
    (
        "Controller 0 epoch 4 received response LeaderAndIsrResponse(12,Map((t,0) -> 0),0) for a request sent to "
        "broker id:3,host:h,port:9092",
        "state.change.logger",
        {"event": "response_received", "api": "LeaderAndIsr", "correlation_id": 12, "peer_broker": 3},
    ),
    (
        "Controller 0 epoch 4 received response {error_code=0,partitions=[{topic=a.b,partition=7,error_code=0},"
        "{topic=t,partition=1,error_code=0}]} for a request sent to broker h:9092 (id: 3 rack: null)",
        "state.change.logger",
        {
            **{"event": "response_received", "api": None, "correlation_id": None, "peer_broker": 3, "error": None},
            **{"topic": "a.b", "partition": 7},
        },
    ),
    (
        "Controller 0 epoch 4 received response {error_code=0} for a request sent to broker h:9092 (id: 3 rack: null)",
        "state.change.logger",
        {"event": "response_received", "api": None, "correlation_id": None, "peer_broker": 3, "topic": None},
    ),
    (
        "[Controller id=2 epoch=1] Sending LeaderAndIsr request to broker 1 with 2 become-leader and 4 become-follower "
        "partitions",
        "state.change.logger",
        {"event": "request_sent", "n_partitions": 6, "peer_broker": 1},
    ),
    (
        "[Broker id=2] Finished LeaderAndIsr request in 391ms correlationId 1 from controller 2 for 6 partitions",
        "state.change.logger",
        {"event": "request_done", "elapsed_ms": 391.0, "n_partitions": 6, "correlation_id": 1},
    ),
    (
        "[Broker id=2] Ignoring LeaderAndIsr request from controller 3 with correlation id 1 epoch 3 "
        "for partition p-2 since "
        "its controller epoch 3 is old. Latest known controller epoch is 4",
        "state.change.logger",
        {"event": "request_ignored", "error": "stale_controller_epoch", "controller_epoch": 3, "topic": "p"},
    ),
    (
        "[Broker id=2] Ignoring LeaderAndIsr request from controller 3 with correlation id 1 epoch 3 "
        "for partition p-2 since "
        "its associated leader epoch 2 matches the current leader epoch",
        "state.change.logger",
        {"event": "request_ignored", "error": "same_leader_epoch"},
    ),
    (
        "[Controller id=2] 2 successfully elected as the controller. Epoch incremented to 1 and epoch "
        "zk version is now 1",
        "kafka.controller.KafkaController",
        {"event": "controller_elected", "controller": 2, "controller_epoch": 1, "broker": 2},
    ),
    (
        "[Controller id=2] Newly added brokers: , deleted brokers: 3,4, bounced brokers: , all live brokers: 1,2",
        "kafka.controller.KafkaController",
        {"event": "brokers_changed", "added": None, "removed": (3, 4), "replicas": (1, 2)},
    ),
    (
        "[Controller 0]: No broker in ISR is alive for [t,2]. Elect leader 1 from live brokers 1,2. "
        "There's potential data "
        "loss.",
        "kafka.controller.OfflinePartitionLeaderSelector",
        {"event": "unclean_elected", "topic": "t", "partition": 2, "leader": 1, "broker": 0},
    ),
    (
        "[Partition orders-3-1 broker=2] ISR updated to 2,3 (under-min-isr) and version updated to 12",
        "kafka.cluster.Partition",
        {"event": "isr_changed", "role": "server", "topic": "orders-3", "isr": (2, 3), "version": 12, "broker": 2},
    ),
    (
        "Session 0x100000be1f60007 for server /127.0.0.1:24191, Closing socket connection. Attempting reconnect except "
        "it is a SessionExpiredException.",
        "org.apache.zookeeper.ClientCnxn",
        {"event": "zookeeper_lost", "role": "server", "broker": 9},
    ),
    (
        "Unable to read additional data from server sessionid 0x15d8a3c0000, likely server has closed socket, closing "
        "socket connection and attempting reconnect",
        "org.apache.zookeeper.ClientCnxn",
        {"event": "zookeeper_lost", "role": "server"},
    ),
    (
        "[Controller id=1] Updated broker epochs cache: HashMap(1 -> 99, 2 -> 906)",
        "kafka.controller.KafkaController",
        {"event": "broker_epochs", "role": "controller", "broker": 1, "reason": "HashMap(1 -> 99, 2 -> 906)"},
    ),
    (
        "Registered broker 3 at path /brokers/ids/3 with addresses: EndPoint(b,9092,ListenerName(PLAINTEXT),PLAINTEXT)",
        "kafka.utils.ZkUtils",
        {"event": "registered", "broker": 9, "broker_epoch": None},
    ),
    (
        "Registered broker 3 at path /brokers/ids/3 with addresses: PLAINTEXT://b:9092, czxid (broker epoch): 906",
        "kafka.zk.KafkaZkClient",
        {"event": "registered", "broker": 9, "broker_epoch": 906},
    ),
    (
        "Creating /brokers/ids/3 (is it secure? false)",
        "kafka.zk.KafkaZkClient",
        {"event": "registering", "role": "server", "broker": 9},
    ),
    ("[KafkaServer id=2] started", "kafka.server.KafkaServer", {"event": "server_started", "broker": 2}),
    ("[RequestSendThread controllerId=2] Starting", "kafka.controller.RequestSendThread", {"event": "other"}),
    (
        "[QuorumController id=3] Becoming the active controller at epoch 7, next write offset 12.",
        "org.apache.kafka.controller.QuorumController",
        {"event": "quorum_activated", "role": "quorum", "broker": 3, "controller_epoch": 7, "offset": 12},
    ),
    ("Loading logs from log dirs", "kafka.log.LogManager", {"event": "other", "broker": 9, "role": "server"}),
    (
        "[Controller id=1] Starting replica leader election (PREFERRED) for partitions a-1,b.c-0 triggered by "
        "AdminClientTriggered",
        "kafka.controller.KafkaController",
        {
            **{"event": "preferred_election_asked", "role": "controller", "broker": 1, "controller": 1},
            **{"reason": "AdminClientTriggered"},
        },
    ),
    (
        "[Controller id=1] Starting replica leader election (PREFERRED) for partitions  triggered by ZkTriggered",
        "kafka.controller.KafkaController",
        {"event": "other", "role": "server", "broker": 1},
    ),
    *OLDER,
    *KRAFT,
)


def damaged(line: str, draw: random.Random) -> str:
    """A line as disks, terminals and people leave it."""
    place = draw.randrange(len(line) + 1)
    ways = (
        lambda: line[:place],
        lambda: line[:place] + draw.choice("\x00\x07\xe9 [](),=-9{}'\"$\\|") + line[place:],
        lambda: line[:place] + line[place + 1 :],
        lambda: line + line,
        line.upper,
        lambda: "\t" + line,
        lambda: line + "\r",
        lambda: line.replace("2026", "9999", 1),
        lambda: line.replace("11-18", "02-31", 1),
        lambda: line.replace("07:4", "02:3", 1),
        lambda: "java.lang.IllegalStateException: " + line[:place],
        lambda: line.replace("1", "12345678901234567890"),
    )
    return draw.choice(ways)()
