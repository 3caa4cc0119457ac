"""The messages of KRaft's nodes, 3.3 to 4.3: controllers in controller.log, brokers in state-change.log and server.log.
Data.

A controller's verb says how far a line can be trusted. It *decides* before anything is committed, so a decision may
never come true; it *replays* a record as it appends it, or when it was committed; it *fences* a broker that it has not
heard. The role of these lines is `quorum`: epochs are the quorum's, and no rule takes them for those of a ZooKeeper
controller.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from sparkjobs.parse.patterns import Shape, shape_for

_b = partial(shape_for, role="broker")
_s = partial(shape_for, role="server")
_TO = r"become-(?<to_state>leader|follower)"
_ID = r"with topic (?:id|ID) (?:Some\()?(?<topic_id>[\w-]+)\)?"
#: a partition as a node has it in memory; ELR since 3.7, directories since 3.6
_REGISTRATION = (
    r"PartitionRegistration\(replicas=\[(?<replicas>{INTS})\], (?:directories=\[[^\]]*\], )?isr=\[(?<isr>{INTS})\], "
    r"removingReplicas=\[(?<removed>{INTS})\], addingReplicas=\[(?<added>{INTS})\], "
    r"(?:elr=\[{INTS}\], lastKnownElr=\[{INTS}\], )?leader=(?<leader>-?\d+), "
    r"leaderRecoveryState=(?<recovery>\w+), leaderEpoch=(?<leader_epoch>-?\d+), partitionEpoch=(?<version>-?\d+)\)"
)
_SEEN = (
    rf"skipped the {_TO} state change for {{T}} {_ID},? (?:and )?partition (?:state|registration) "
    rf"(?:{{ASKED}}|{_REGISTRATION}).*"
)
#: old and new values: only changed ones are printed
_CHANGED = (
    r"(?:.*?\bisr: \[{INTS}\] -> \[(?<isr>{INTS})\])?(?:.*?\bleader: -?\d+ -> (?<leader>-?\d+))?"
    r"(?:.*?\bleaderRecoveryState: \w+ -> (?<recovery>\w+))?(?:.*?\bleaderEpoch: -?\d+ -> (?<leader_epoch>-?\d+))?"
    r"(?:.*?\bpartitionEpoch: -?\d+ -> (?<version>-?\d+))?.*"
)


def _q(shape_id: str, event: str, anchor: str, pattern: str, mark: str = "", reason: str | None = None) -> Shape:
    """Returns a shape of QuorumController; `anchor` is the text behind its prefix."""
    anchor = f"quorumcontroller: {anchor}" if anchor else "quorumcontroller:"
    shape = partial(shape_for, shape_id, event, "quorum", pattern, anchor=anchor, mark=mark)
    return shape() if reason is None else shape(reason=reason)


#: of a broker in ZooKeeper mode it says so, and ZooKeeper's own lines tell
_LIFECYCLE = r"\[BrokerLifecycleManager id=\d+\]"

#: of brokers, about the content of the metadata log
KRAFT_BROKER_SHAPES: Final[tuple[Shape, ...]] = (
    _b(
        "metadata.skipped",
        "metadata_seen",
        anchor="skipped the become-leader state change for",
        mark=" with topic id ",
        pattern=_SEEN,
    ),
    _b(
        "metadata.skipped.follower",
        "metadata_seen",
        anchor="skipped the become-follower state change for",
        mark=" with topic id ",
        pattern=_SEEN,
    ),
    _b(
        "metadata.transitioning",
        "metadata_step",
        reason="transitioning",
        anchor="transitioning ",
        mark=" to local ",
        pattern=r"transitioning (?<n_partitions>\d+) partition\(s\) to local (?<to_state>leader|follower)s\.?",
    ),
    _b(
        "metadata.creating",
        "metadata_step",
        reason="creating",
        anchor="creating new partition",
        pattern=rf"creating new partition {{T}} {_ID}\.?",
    ),
    _b(
        "metadata.missing",
        "metadata_step",
        reason="creating",
        anchor="expected partition",
        pattern=rf"expected partition {{T}} {_ID} to exist, but it was missing\. Creating\.*",
    ),
    _b(
        "metadata.fetchers.stopped",
        "metadata_step",
        reason="stopped fetchers",
        anchor="stopped fetchers as part of become-follower for",
        pattern=r"stopped fetchers as part of become-follower for (?<n_partitions>\d+) partitions",
    ),
    _b(
        "metadata.fetchers.shutdown",
        "metadata_step",
        reason="stopped fetchers to shut down",
        anchor="stopped fetchers as part of controlled shutdown",
        pattern=r"stopped fetchers as part of controlled shutdown for (?<n_partitions>\d+) partitions",
    ),
    _b(
        "metadata.fetchers.started",
        "metadata_step",
        reason="started fetchers",
        anchor="started fetchers as part of become-follower for",
        pattern=r"started fetchers as part of become-follower for (?<n_partitions>\d+) partitions",
    ),
    _b(
        "metadata.unfetched",
        "metadata_step",
        reason="leader is not alive",
        anchor="unable to start fetching",
        pattern=rf"unable to start fetching {{T}} {_ID} from leader (?:Some\()?(?<leader>-?\d+)\)? because it is "
        r"not alive\.?",
    ),
    _b(
        "metadata.disk",
        "metadata_step",
        reason="log directory is offline",
        anchor="unable to bring up new local",
        pattern=rf"unable to bring up new local (?<to_state>leader|follower) {{T}} {_ID} because it resides in an "
        r"offline log directory\.?",
    ),
    _b(
        "metadata.deleting",
        "metadata_step",
        reason="deleting",
        anchor="deleting ",
        mark=" partition(s)",
        pattern=r"deleting (?<n_partitions>\d+) partition\(s\)\.?",
    ),
    _b(
        "metadata.deleting.replicas",
        "metadata_step",
        reason="deleting stray replicas",
        anchor="while handling full leaderandisr request",
        pattern=r"while handling full LeaderAndIsr request from KRaft controller (?<controller>\d+) with {ID}, found "
        r"(?<n_partitions>\d+) stray partition\(s\)\.?",
    ),
    # of a KRaft controller that still tells brokers in ZooKeeper mode
    shape_for(
        "migration.brokers",
        "quorum_said",
        "quorum",
        r"adding brokers Set\(.*",
        anchor="adding brokers",
    ),
)

#: of controllers: the first that fits
KRAFT_CONTROLLER_SHAPES: Final[tuple[Shape, ...]] = (
    _q(
        "quorum.fencing",
        "quorum_fencing",
        "fencing broker",
        r"fencing broker (?<peer_broker>\d+)(?: at epoch (?<broker_epoch>\d+))? because its session has timed out\.?",
    ),
    _q(
        "quorum.active",
        "quorum_activated",
        "becoming the active controller",
        r"becoming the active controller at epoch (?<controller_epoch>\d+)(?:, next write offset (?<offset>\d+))?.*",
    ),
    _q(
        "quorum.renounced.log",
        "quorum_renounced",
        "renouncing the leadership",
        r"renouncing the leadership.*? due to a metadata log event\. We were the leader at epoch "
        r"(?<controller_epoch>\d+), but in the new epoch \d+, the leader is (?:\(none\)|(?<controller>\d+))\. "
        r"Reverting to last (?:committed|stable) offset (?<offset>\d+).*",
    ),
    _q(
        "quorum.renounced",
        "quorum_renounced",
        "",
        r".*?(?:at epoch (?<controller_epoch>\d+).*?)?Renouncing leadership and reverting to the last "
        r"(?:committed|stable) offset (?<offset>\d+).*",
        mark="Renouncing leadership and reverting",
    ),
    _q(
        "quorum.epoch",
        "quorum_leader",
        "in the new epoch",
        r"in the new epoch (?<controller_epoch>\d+), the leader is (?:\(none\)|(?<controller>\d+))\.?",
    ),
    _q(
        "quorum.broker.changed",
        "quorum_broker_changed",
        "replayed brokerregistrationchangerecord",
        r"replayed BrokerRegistrationChangeRecord modifying the registration for broker (?<peer_broker>\d+): "
        r"BrokerRegistrationChangeRecord\(brokerId=\d+, brokerEpoch=(?<broker_epoch>\d+), (?<reason>.*)\)",
    ),
    _q(
        "quorum.broker.first",
        "quorum_broker_changed",
        "replayed initial registerbrokerrecord",
        r"replayed initial RegisterBrokerRecord for broker (?<peer_broker>\d+): RegisterBrokerRecord\("
        r"(?:.*?brokerEpoch=(?<broker_epoch>\d+))?.*",
        reason="registered",
    ),
    _q(
        "quorum.broker.again",
        "quorum_broker_changed",
        "replayed registerbrokerrecord",
        r"replayed RegisterBrokerRecord establishing a new incarnation of broker (?<peer_broker>\d+): "
        r"RegisterBrokerRecord\((?:.*?brokerEpoch=(?<broker_epoch>\d+))?.*",
        reason="registered",
    ),
    _q(
        "quorum.registering",
        "quorum_decided",
        "registering a new incarnation",
        r"registering a new incarnation of broker (?<peer_broker>\d+)\.(?:.*Broker epoch will become "
        r"(?<broker_epoch>\d+)\.?)?.*",
        reason="registering",
    ),
    _q(
        "quorum.registering.first",
        "quorum_decided",
        "no previous registration found",
        r"no previous registration found for broker (?<peer_broker>\d+)\.(?:.*New broker epoch is "
        r"(?<broker_epoch>\d+)\.?)?.*",
        reason="registering",
    ),
    _q(
        "quorum.granted",
        "quorum_decided",
        "the request from broker",
        r"the request from broker (?<peer_broker>\d+) to (?<reason>unfence|shut down) has been granted.*",
        mark=" has been granted",
    ),
    _q(
        "quorum.leaving",
        "quorum_decided",
        "unfenced broker",
        r"unfenced broker (?<peer_broker>\d+) has requested and been granted a controlled shutdown\.?",
        reason="shutting down",
    ),
    _q(
        "quorum.disks",
        "quorum_decided",
        "directories [",
        r"directories \[[^\]]*\] in broker (?<peer_broker>\d+) marked offline.*",
        reason="log directories are offline",
    ),
    _q(
        "quorum.changing",
        "quorum_decided",
        "",
        r"(?<reason>\w+)(?:\[.*?\])?: changing (?<n_partitions>\d+) partition\(s\).*",
        mark=" partition(s)",
    ),
    _q(
        "quorum.isr",
        "quorum_decided",
        "node ",
        rf"node (?<peer_broker>\d+) has altered ISR for {{T}}\.{_CHANGED}",
        mark=" has altered ISR for ",
        reason="ISR",
    ),
    _q(
        "quorum.rejected",
        "quorum_rejected",
        "rejecting alterpartition request",
        r"rejecting AlterPartition request from node (?<peer_broker>\d+) for {T} because (?<reason>.*)",
    ),
    _q(
        "quorum.moved",
        "quorum_decided",
        "alterpartition request from node",
        rf"alterPartition request from node (?<peer_broker>\d+) for {{T}} completed the ongoing partition "
        rf"reassignment{_CHANGED}",
        mark=" completed the ongoing ",
        reason="reassignment is done",
    ),
    _q(
        "quorum.partition.unclean",
        "quorum_partition_changed",
        "unclean partition change for",
        rf"UNCLEAN partition change for {{T}} {_ID}:{_CHANGED}",
        reason="recovering",
    ),
    _q(
        "quorum.partition",
        "quorum_partition_changed",
        "partition change for",
        rf"partition change for {{T}} {_ID}:{_CHANGED}",
    ),
    _q(
        "quorum.partition.created",
        "quorum_replayed",
        "replayed partitionrecord",
        rf"replayed PartitionRecord for (?:new|existing) partition {{T}} {_ID} and {_REGISTRATION}.*",
        reason="partition",
    ),
    _q(
        "quorum.topic",
        "quorum_replayed",
        "replayed topicrecord",
        rf"replayed TopicRecord for (?:new |existing )?topic (?<topic>[\w.-]+) {_ID}\.?",
        reason="topic",
    ),
    _q(
        "quorum.topic.removed",
        "quorum_replayed",
        "replayed removetopicrecord",
        r"replayed RemoveTopicRecord for topic (?<topic>[\w.-]+) with ID (?<topic_id>[\w-]+)\.?",
        reason="topic is removed",
    ),
    _q(
        "quorum.replayed",
        "quorum_replayed",
        "replayed",
        r"replayed (?:a |an )?(?<reason>\w+).*",
        mark="eplayed ",
    ),
    # the rest, so that its silence is not taken for health
    _q("quorum", "quorum_said", "", r".*"),
    shape_for(
        "quorum.elected",
        "quorum_elected",
        "quorum",
        r"setting new leader for topicId (?<topic_id>[\w-]+), partition (?<partition>\d+) to (?<leader>-?\d+) using "
        r"(?<reason>an unclean election|a clean election|ELR).*",
        anchor="setting new leader for",
    ),
)

#: of every node, in server.log
KRAFT_SERVER_SHAPES: Final[tuple[Shape, ...]] = (
    _s(
        "raft.state",
        "quorum_state",
        anchor="completed transition to",
        pattern=r"completed transition to (?<to_state>\w+)\((?:.*?epoch=(?<controller_epoch>\d+))?.*",
    ),
    _s(
        "raft.controller",
        "quorum_leader",
        anchor="recorded new kraft controller",
        pattern=r"recorded new KRaft controller, from now on will use node \S+ \(id: (?<controller>\d+) .*",
    ),
    shape_for(
        "migration.state",
        "migration_moved",
        "quorum",
        r"\d+ transitioning from (?<from_state>\w+) to (?<to_state>\w+) state\.?",
        anchor="# transitioning from",
    ),
    shape_for(
        "controller.stopping",
        "quorum_stopping",
        "quorum",
        r"shutting down\.?",
        anchor="controllerserver: shutting down",
    ),
    _s(
        "kraft.starting",
        "server_starting",
        on_message=True,
        anchor="incarnation ",
        mark=" is now STARTING",
        pattern=rf"{_LIFECYCLE} Incarnation \S+ of broker \d+ in cluster \S+ is now STARTING\.?",
    ),
    _s(
        "kraft.registered",
        "registered",
        on_message=True,
        anchor="successfully registered broker",
        pattern=rf"{_LIFECYCLE} Successfully registered broker \d+ with broker epoch (?<broker_epoch>\d+)",
    ),
    _s(
        "kraft.running",
        "server_started",
        on_message=True,
        anchor="the broker has been unfenced",
        pattern=rf"{_LIFECYCLE} The broker has been unfenced\. Transitioning from RECOVERY to RUNNING\.?",
    ),
    _s(
        "kraft.leaving",
        "controlled_shutdown_started",
        on_message=True,
        anchor="beginning controlled shutdown",
        pattern=rf"{_LIFECYCLE} Beginning controlled shutdown\.?",
    ),
    _s(
        "kraft.left",
        "controlled_shutdown_done",
        on_message=True,
        anchor="the controller has asked us to exit",
        pattern=rf"{_LIFECYCLE} The controller has asked us to exit controlled shutdown\.?",
    ),
    _s(
        "log.loaded",
        "log_loaded",
        on_message=True,
        anchor="log loaded for partition",
        pattern=r"\[Partition {T} broker=\d+\] Log loaded for partition \S+ with initial high watermark "
        r"(?<offset>-?\d+)",
    ),
    _s(
        "log.truncated",
        "log_truncated",
        on_message=True,
        anchor="truncating to offset",
        pattern=r"\[(?:Unified)?Log partition={T}, dir=[^\]]*\] Truncating to offset (?<offset>\d+)",
    ),
    _s(
        "log.truncated.committed",
        "log_truncated",
        reason="below the high watermark",
        anchor="truncating ",
        mark=" below high watermark ",
        pattern=r"truncating {T} to offset (?<offset>\d+) below high watermark \d+",
    ),
)
