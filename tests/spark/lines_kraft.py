"""As in `lines`: lines of the nodes of a KRaft cluster, of 3.9.1 and 4.3.1. Written by Kafka, and shortened."""

from __future__ import annotations

from typing import Any, Final

_QUORUM: Final = "org.apache.kafka.controller.QuorumController"
_REPLICATION: Final = "org.apache.kafka.controller.ReplicationControlManager"
_STATE: Final = "state.change.logger"
_LIFECYCLE: Final = "org.apache.kafka.server.BrokerLifecycleManager"
_SKIPPED: Final = (
    "[Broker id=1] Skipped the become-leader state change for orders-0 with topic id Some(EfgGD-WjSKewgVZdwiq-BQ)"
)

KRAFT: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    (
        f"{_SKIPPED}, partition registration PartitionRegistration(replicas=[1, 2, 3], directories=[nzRqcliHsw2E, "
        "nqJ7CfK8], isr=[1, 2], removingReplicas=[], addingReplicas=[], elr=[3], lastKnownElr=[], leader=1, "
        "leaderRecoveryState=RECOVERED, leaderEpoch=0, partitionEpoch=3) and isNew=false since it is already the "
        "leader with leader epoch 0. Current high watermark 0, ISR [1,2,3], adding replicas [].",
        _STATE,
        {
            **{"event": "metadata_seen", "role": "broker", "broker": 1, "topic": "orders", "partition": 0},
            **{"topic_id": "EfgGD-WjSKewgVZdwiq-BQ", "leader": 1, "leader_epoch": 0, "version": 3, "isr": (1, 2)},
        },
    ),
    (
        f"{_SKIPPED} and partition state LeaderAndIsrPartitionState(topicName='orders', partitionIndex=0, "
        "controllerEpoch=-1, leader=3, leaderEpoch=9, isr=[3, 1], partitionEpoch=18, replicas=[1, 3], "
        "addingReplicas=[], removingReplicas=[], isNew=true, leaderRecoveryState=0) since it is already the leader",
        _STATE,
        {"event": "metadata_seen", "leader": 3, "leader_epoch": 9, "version": 18, "isr": (3, 1), "replicas": (1, 3)},
    ),
    (
        "[Broker id=1] Skipped the become-follower state change for orders-1 with topic id Some(EfgGD), partition "
        "registration PartitionRegistration(replicas=[2, 1], isr=[2, 1], removingReplicas=[], addingReplicas=[], "
        "leader=2, leaderRecoveryState=RECOVERED, leaderEpoch=4, partitionEpoch=3) and isNew=false since it is already",
        _STATE,
        {"event": "metadata_seen", "to_state": "follower", "leader": 2, "leader_epoch": 4},
    ),
    (
        "[Broker id=3] Transitioning 12 partition(s) to local followers.",
        _STATE,
        {"event": "metadata_step", "n_partitions": 12, "to_state": "follower"},
    ),
    (
        "[Broker id=1] Creating new partition pay_0.x-2 with topic id w6hJeQmNT62TGqwyAM3MIQ.",
        _STATE,
        {"event": "metadata_step", "topic": "pay_0.x", "partition": 2, "topic_id": "w6hJeQmNT62TGqwyAM3MIQ"},
    ),
    (
        "[Broker id=1] Expected partition t_new-5 with topic id 4GQTmY9hSECsgBOPFBucSQ to exist, but it was missing. "
        "Creating...",
        _STATE,
        {"event": "metadata_step", "reason": "creating", "topic": "t_new", "partition": 5},
    ),
    (
        "[Broker id=1] Stopped fetchers as part of become-follower for 4 partitions",
        _STATE,
        {"event": "metadata_step", "reason": "stopped fetchers", "n_partitions": 4},
    ),
    (
        "[Broker id=1] Stopped fetchers as part of controlled shutdown for 11 partitions",
        _STATE,
        {"event": "metadata_step", "reason": "stopped fetchers to shut down", "n_partitions": 11},
    ),
    (
        "[Broker id=3] Started fetchers as part of become-follower for 19 partitions",
        _STATE,
        {"event": "metadata_step", "reason": "started fetchers", "n_partitions": 19},
    ),
    (
        "[Broker id=1] Unable to start fetching single-2 with topic ID Some(uz3rOKKcT3ezHOVhCDIdjA) from leader "
        "Some(-1) because it is not alive.",
        _STATE,
        {"event": "metadata_step", "leader": -1, "topic": "single", "partition": 2},
    ),
    (
        "[Broker id=2] Unable to bring up new local leader t_new-5 with topic id 4GQTmY because it resides in an "
        "offline log directory.",
        _STATE,
        {"event": "metadata_step", "reason": "log directory is offline", "topic": "t_new", "to_state": "leader"},
    ),
    ("[Broker id=1] Deleting 5 partition(s).", _STATE, {"event": "metadata_step", "n_partitions": 5}),
    (
        "[Broker id=1] While handling full LeaderAndIsr request from KRaft controller 3000 with correlation id 1, "
        "found 0 stray partition(s).",
        _STATE,
        {"event": "metadata_step", "controller": 3000, "correlation_id": 1, "n_partitions": 0},
    ),
    (
        "Adding brokers Set(), removing brokers Set(3 : (EndPoint(127.0.0.1,25503,ListenerName(PLAINTEXT))) : null).",
        _STATE,
        {"event": "quorum_said"},
    ),
    (
        "[Broker id=1] Leader orders-0 with topic id Some(EfgGD-WjSKewgVZdwiq-BQ) starts at leader epoch 7 from offset "
        "1851 with partition epoch 17, high watermark 0, ISR [1,2,3], adding replicas [] and removing replicas [] . "
        "Previous leader None and previous leader epoch was -1.",
        _STATE,
        {"event": "leader_started", "leader_epoch": 7, "version": 17, "offset": 1851, "isr": (1, 2, 3)},
    ),
    (
        "[Broker id=1] Follower pay_0.x-0 starts at leader epoch 8 from offset 1911 with partition epoch 18 and high "
        "watermark 1905. Current leader is 3. Previous leader None and previous leader epoch was -1.",
        _STATE,
        {"event": "follower_started", "leader": 3, "leader_epoch": 8, "version": 18, "offset": 1911},
    ),
    (
        "[QuorumController id=101] Fencing broker 3 at epoch 21 because its session has timed out.",
        _REPLICATION,
        {"event": "quorum_fencing", "role": "quorum", "broker": 101, "peer_broker": 3, "broker_epoch": 21},
    ),
    (
        "[QuorumController id=3000] Fencing broker 3 because its session has timed out.",
        _REPLICATION,
        {"event": "quorum_fencing", "broker": 3000, "peer_broker": 3, "broker_epoch": None},
    ),
    (
        "[QuorumController id=1] Becoming the active controller at epoch 3, committed offset 9, committed epoch 2",
        _QUORUM,
        {"event": "quorum_activated", "controller_epoch": 3, "offset": None},
    ),
    (
        "[QuorumController id=101] maybeFenceStaleBroker: event failed with NotLeaderException (treated as "
        "NotControllerException) at epoch 3 in 25873 microseconds. Renouncing leadership and reverting to the last "
        "committed offset 363. Exception message: Append failed because the replica is not the current leader",
        _QUORUM,
        {"event": "quorum_renounced", "broker": 101, "controller_epoch": 3, "offset": 363},
    ),
    (
        "[QuorumController id=2] Renouncing the leadership due to a metadata log event. We were the leader at epoch 3, "
        "but in the new epoch 4, the leader is (none). Reverting to last stable offset 341.",
        _QUORUM,
        {"event": "quorum_renounced", "controller_epoch": 3, "offset": 341, "controller": None},
    ),
    (
        "[QuorumController id=101] In the new epoch 1, the leader is (none).",
        _QUORUM,
        {"event": "quorum_leader", "controller_epoch": 1, "controller": None},
    ),
    (
        "[QuorumController id=101] In the new epoch 1, the leader is 102.",
        _QUORUM,
        {"event": "quorum_leader", "controller_epoch": 1, "controller": 102},
    ),
    (
        "[QuorumController id=3] Replayed BrokerRegistrationChangeRecord modifying the registration for broker 2: "
        "BrokerRegistrationChangeRecord(brokerId=2, brokerEpoch=19, fenced=-1, inControlledShutdown=0, logDirs=[])",
        "org.apache.kafka.controller.ClusterControlManager",
        {"event": "quorum_broker_changed", "peer_broker": 2, "broker_epoch": 19,
         "reason": "fenced=-1, inControlledShutdown=0, logDirs=[]"},
    ),
    (
        "[QuorumController id=3] Replayed initial RegisterBrokerRecord for broker 1: RegisterBrokerRecord(brokerId=1, "
        "isMigratingZkBroker=false, incarnationId=Lb6bSG, brokerEpoch=18, endPoints=[])",
        "org.apache.kafka.controller.ClusterControlManager",
        {"event": "quorum_broker_changed", "peer_broker": 1, "broker_epoch": 18, "reason": "registered"},
    ),
    (
        "[QuorumController id=3] Replayed RegisterBrokerRecord establishing a new incarnation of broker 2: "
        "RegisterBrokerRecord(brokerId=2, isMigratingZkBroker=false, incarnationId=aJH, brokerEpoch=153, endPoints=[])",
        "org.apache.kafka.controller.ClusterControlManager",
        {"event": "quorum_broker_changed", "peer_broker": 2, "broker_epoch": 153},
    ),
    (
        "[QuorumController id=3] Registering a new incarnation of broker 2. Previous incarnation ID was JlU; new "
        "incarnation ID is aJH. Generated 1 record(s) to clean up previous incarnations. Broker epoch will become 153.",
        "org.apache.kafka.controller.ClusterControlManager",
        {"event": "quorum_decided", "peer_broker": 2, "broker_epoch": 153},
    ),
    (
        "[QuorumController id=3] No previous registration found for broker 1. New incarnation ID is Lb6.  Generated 0 "
        "record(s) to clean up previous incarnations. New broker epoch is 18.",
        "org.apache.kafka.controller.ClusterControlManager",
        {"event": "quorum_decided", "peer_broker": 1, "broker_epoch": 18},
    ),
    (
        "[QuorumController id=3] The request from broker 2 to unfence has been granted because it has caught up with "
        "the offset of its register broker record 19.",
        "org.apache.kafka.controller.BrokerHeartbeatManager",
        {"event": "quorum_decided", "peer_broker": 2, "reason": "unfence"},
    ),
    (
        "[QuorumController id=3] Unfenced broker 1 has requested and been granted a controlled shutdown.",
        "org.apache.kafka.controller.BrokerHeartbeatManager",
        {"event": "quorum_decided", "peer_broker": 1, "reason": "shutting down"},
    ),
    (
        "[QuorumController id=103] Directories [gjZj7Yad0WSpXwWDE_0xfA] in broker 2 marked offline, remaining "
        "directories: [nqJ7CfK8HVaBwLmaJ2OY4Q]",
        _REPLICATION,
        {"event": "quorum_decided", "peer_broker": 2, "reason": "log directories are offline"},
    ),
    (
        "[QuorumController id=3] handleBrokerFenced: changing 14 partition(s)",
        _REPLICATION,
        {"event": "quorum_decided", "reason": "handleBrokerFenced", "n_partitions": 14},
    ),
    (
        "[QuorumController id=3] enterControlledShutdown[2]: changing 3 partition(s)",
        _REPLICATION,
        {"event": "quorum_decided", "reason": "enterControlledShutdown", "n_partitions": 3},
    ),
    (
        "[QuorumController id=3] Node 3 has altered ISR for orders-1. isr: [3, 1] -> [1, 2, 3], replicaSet: [2, 3, 1] "
        "-> [2, 3, 1], partitionEpoch: 4 -> 5, leaderEpoch: 1 -> 1",
        _REPLICATION,
        {"event": "quorum_decided", "peer_broker": 3, "topic": "orders", "partition": 1, "isr": (1, 2, 3)},
    ),
    (
        "[QuorumController id=3] Rejecting AlterPartition request from node 2 for made_with_controller-0 because the "
        "current partition epoch is 9, not 8.",
        _REPLICATION,
        {"event": "quorum_rejected", "peer_broker": 2, "topic": "made_with_controller", "partition": 0},
    ),
    (
        "[QuorumController id=3] AlterPartition request from node 3 for pay_0.x-1 completed the ongoing partition "
        "reassignment and triggered a leadership change isr: [2, 3] -> [1, 2], replicaSet: [1, 2, 3] -> [1, 2]",
        _REPLICATION,
        {"event": "quorum_decided", "topic": "pay_0.x", "partition": 1, "isr": (1, 2)},
    ),
    (
        "[QuorumController id=101] UNCLEAN partition change for single-1 with topic ID uz3: isr: [] -> [2], leader: "
        "-1 -> 2, leaderRecoveryState: RECOVERED -> RECOVERING, leaderEpoch: 1 -> 2, lastKnownElr: [2] -> [], "
        "partitionEpoch: 3 -> 4",
        _REPLICATION,
        {
            **{"event": "quorum_partition_changed", "topic": "single", "partition": 1, "topic_id": "uz3", "isr": (2,)},
            **{"leader": 2, "leader_epoch": 2, "recovery": "RECOVERING", "version": 4, "reason": "recovering"},
        },
    ),
    (
        "[QuorumController id=103] partition change for pay_0.x-3 with topic ID w6h: leader: 1 -> 3, leaderEpoch: 14 "
        "-> 15, partitionEpoch: 30 -> 31",
        _REPLICATION,
        {"event": "quorum_partition_changed", "leader": 3, "leader_epoch": 15, "version": 31, "isr": None},
    ),
    (
        "[QuorumController id=3] Replayed PartitionRecord for new partition orders-0 with topic ID EfgGD and "
        "PartitionRegistration(replicas=[1, 2], directories=[AAAA, AAAA], isr=[1, 2], removingReplicas=[], "
        "addingReplicas=[], elr=[], lastKnownElr=[], leader=1, leaderRecoveryState=RECOVERED, leaderEpoch=0, "
        "partitionEpoch=0).",
        _REPLICATION,
        {"event": "quorum_replayed", "topic": "orders", "partition": 0, "leader": 1, "isr": (1, 2)},
    ),
    (
        "[QuorumController id=3] Replayed TopicRecord for topic orders with topic ID EfgGD-WjSKewgVZdwiq-BQ.",
        _REPLICATION,
        {"event": "quorum_replayed", "topic": "orders", "topic_id": "EfgGD-WjSKewgVZdwiq-BQ"},
    ),
    (
        "[QuorumController id=3] Replayed RemoveTopicRecord for topic t_new with ID 4GQTmY9hSECsgBOPFBucSQ.",
        _REPLICATION,
        {"event": "quorum_replayed", "topic": "t_new", "reason": "topic is removed"},
    ),
    (
        "[QuorumController id=3] Replayed a FeatureLevelRecord setting metadata.version to 4.2-IV1",
        "org.apache.kafka.controller.FeatureControlManager",
        {"event": "quorum_replayed", "reason": "FeatureLevelRecord"},
    ),
    (
        "[QuorumController id=3] writeNoOpRecord: event failed with NotControllerException in 20 microseconds.",
        _QUORUM,
        {"event": "quorum_said", "role": "quorum", "broker": 3},
    ),
    (
        "Setting new leader for topicId uz3rOKKcT3ezHOVhCDIdjA, partition 0 to 2 using an unclean election",
        "org.apache.kafka.controller.PartitionChangeBuilder",
        {"event": "quorum_elected", "topic_id": "uz3rOKKcT3ezHOVhCDIdjA", "partition": 0, "leader": 2,
         "reason": "an unclean election"},
    ),
    (
        "[ControllerServer id=3000] shutting down",
        "kafka.server.ControllerServer",
        {"event": "quorum_stopping", "role": "quorum", "broker": 3000},
    ),
    (
        "[KRaftMigrationDriver id=3000] 3000 transitioning from KRAFT_CONTROLLER_TO_BROKER_COMM to DUAL_WRITE state",
        "org.apache.kafka.metadata.migration.KRaftMigrationDriver",
        {"event": "migration_moved", "role": "quorum", "broker": 3000, "to_state": "DUAL_WRITE",
         "from_state": "KRAFT_CONTROLLER_TO_BROKER_COMM"},
    ),
    (
        "[RaftManager id=3000] Completed transition to Leader(localReplicaKey=ReplicaKey(id=3000, directoryId="
        "Optional[FZn9]), epoch=2, epochStartOffset=378, highWatermark=Optional.empty) from CandidateState(epoch=2)",
        "org.apache.kafka.raft.QuorumState",
        {"event": "quorum_state", "to_state": "Leader", "controller_epoch": 2, "broker": 3000},
    ),
    (
        "[controller-3000-to-controller-registration-channel-manager]: Recorded new KRaft controller, from now on will "
        "use node 127.0.0.1:25580 (id: 3000 rack: null)",
        "kafka.server.NodeToControllerRequestThread",
        {"event": "quorum_leader", "controller": 3000},
    ),
    (
        "[BrokerLifecycleManager id=1] Incarnation Lb6bSG of broker 1 in cluster YOjE4f is now STARTING.",
        _LIFECYCLE,
        {"event": "server_starting", "broker": 1},
    ),
    (
        "[BrokerLifecycleManager id=1 isZkBroker=true] Incarnation Lb6 of broker 1 in cluster YOjE4f is now STARTING.",
        _LIFECYCLE,
        {"event": "other", "broker": 1},
    ),
    (
        "[BrokerLifecycleManager id=1] Successfully registered broker 1 with broker epoch 18",
        _LIFECYCLE,
        {"event": "registered", "broker_epoch": 18},
    ),
    (
        "[BrokerLifecycleManager id=1] The broker has been unfenced. Transitioning from RECOVERY to RUNNING.",
        _LIFECYCLE,
        {"event": "server_started"},
    ),
    (
        "[BrokerLifecycleManager id=1] Beginning controlled shutdown.",
        _LIFECYCLE,
        {"event": "controlled_shutdown_started"},
    ),
    (
        "[BrokerLifecycleManager id=1] The controller has asked us to exit controlled shutdown.",
        _LIFECYCLE,
        {"event": "controlled_shutdown_done"},
    ),
    (
        "[Partition pay_0.x-0 broker=1] Log loaded for partition pay_0.x-0 with initial high watermark 1905",
        "kafka.cluster.Partition",
        {"event": "log_loaded", "topic": "pay_0.x", "partition": 0, "offset": 1905, "broker": 1},
    ),
    (
        "[UnifiedLog partition=pay_0.x-0, dir=/var/lib/kafka/d1] Truncating to offset 1851",
        "kafka.log.UnifiedLog",
        {"event": "log_truncated", "topic": "pay_0.x", "partition": 0, "offset": 1851, "reason": None},
    ),
    (
        "[UnifiedLog partition=pay_0.x-0, dir=/var/lib/kafka/d1] Truncating pay_0.x-0 to offset 1851 below high "
        "watermark 1905",
        "org.apache.kafka.storage.internals.log.UnifiedLog",
        {"event": "log_truncated", "topic": "pay_0.x", "offset": 1851, "reason": "below the high watermark"},
    ),
)  # fmt: skip
