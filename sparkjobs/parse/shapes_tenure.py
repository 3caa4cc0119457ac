"""controller.log about the active controller, and the messages of brokers about themselves in server.log.

Lines of these logs that are in no catalogue answer no question: they are events `other`. As in `shapes_controller`.
Data.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from sparkjobs.parse.patterns import Shape, shape_for

_c = partial(shape_for, role="controller")
_s = partial(shape_for, role="server")

TENURE_SHAPES: Final[tuple[Shape, ...]] = (
    _c(
        "elected",
        "controller_elected",
        anchor="# successfully elected as",
        pattern=r"(?<controller>\d+) successfully elected as (?:the controller|leader)"
        r"(?:\. Epoch incremented to (?<controller_epoch>\d+) and epoch zk version is now \d+)?.*",
    ),
    _c(
        "elected.not",
        "controller_not_elected",
        anchor="has been elected as the controller",
        pattern=r"has been elected as the controller.*",
    ),
    _c(
        "elected.instead",
        "controller_not_elected",
        anchor="was elected as controller instead",
        pattern=r"was elected as controller instead of broker \d+.*",
    ),
    _c("elected.not.old", "controller_not_elected", anchor="# was elected as", pattern=r"\d+ was elected as.*"),
    _c(
        "epoch",
        "controller_epoch_raised",
        anchor="incremented epoch to",
        pattern=r"incremented epoch to (?<controller_epoch>\d+)",
    ),
    _c(
        "epoch.new",
        "controller_epoch_raised",
        anchor="epoch incremented to",
        pattern=r"epoch incremented to (?<controller_epoch>\d+).*",
    ),
    _c("failover.started.old", "failover_started", pattern=r"starting become controller state transition"),
    _c("failover.handlers", "failover_started", pattern=r"registering handlers", reason="registering handlers"),
    _c("failover.context", "failover_step", pattern=r"initializing controller context", reason="loading"),
    _c(
        "failover.brokers",
        "brokers_met",
        anchor="currently active brokers in",
        pattern=r"currently active brokers in the cluster: {LIST}",
    ),
    _c("failover.deletions", "failover_step", pattern=r"fetching topic deletions in progress", reason="deletions"),
    _c("failover.metadata", "failover_step", pattern=r"sending update metadata request", reason="telling"),
    _c("failover.replicas", "failover_step", pattern=r"initializing replica state", reason="replica states"),
    _c("failover.partitions", "failover_step", pattern=r"initializing partition state", reason="partition states"),
    _c(
        "failover.replicas.started",
        "partition_snapshot",
        anchor="started replica state machine",
        pattern=r"started replica state machine with initial state -> .*",
        reason="replicas",
    ),
    _c(
        "failover.partitions.started",
        "partition_snapshot",
        anchor="started partition state machine",
        pattern=r"started partition state machine with initial state -> .*",
        reason="partitions",
    ),
    _c(
        "ready",
        "controller_ready",
        anchor="ready to serve as",
        pattern=r"ready to serve as the new controller with epoch (?<controller_epoch>\d+)",
    ),
    _c(
        "ready.old",
        "controller_ready",
        anchor="is ready to serve as",
        pattern=r"is ready to serve as the new controller with epoch (?<controller_epoch>\d+)",
    ),
    _c("failover.done", "failover_done", pattern=r"starting the controller scheduler"),
    _c("failover.done.old", "failover_done", pattern=r"controller startup complete.*"),
    _c("resigning", "failover_step", pattern=r"resigning", reason="resigning"),
    _c(
        "resigned.old",
        "controller_resigned",
        anchor="resigned as the controller",
        pattern=r"resigned as the controller.*",
    ),
    _c("resigned", "controller_resigned", pattern=r"resigned"),
    _c(
        "moved",
        "controller_moved",
        anchor="controller moved to another broker",
        pattern=r"controller moved to another broker.*",
    ),
    _c("session.expired", "session_expired", anchor="zk expired", pattern=r"ZK expired.*"),
    _c("session.expired.new", "session_expired", pattern=r"session expired.*"),
    _c(
        "session.new",
        "session_established",
        pattern=r"session establishment complete on server .*?(?:negotiated timeout = (?<elapsed_ms>\d+).*)?",
    ),
)

#: messages of ZooKeeper's client about its connection: 3.6 and later, earlier, and when nothing was heard
_LOST: Final = (
    ("zookeeper.closed", "session 0x", r"session 0x\w+ for server .*"),
    ("zookeeper.closed.old", "unable to read additional", r"unable to read additional data from server .*"),
    ("zookeeper.silent", "client session timed out", r"client session timed out, have not heard from server in .*"),
)


SERVER_SHAPES: Final[tuple[Shape, ...]] = (
    *(_s(shape_id, "zookeeper_lost", anchor=anchor, pattern=pattern) for shape_id, anchor, pattern in _LOST),
    _s(
        "session.expired.old",
        "session_expired",
        anchor="zookeeper state changed (expired",
        pattern=r"zookeeper state changed \(Expired\)",
    ),
    _s("registering", "registering", anchor="creating /brokers/ids/", pattern=r"creating /brokers/ids/\d+ .*"),
    _s(
        "isr.shrinking",
        "isr_changed",
        on_message=True,
        reason="shrinking",
        anchor="shrinking isr from",
        pattern=r"\[Partition {T} broker=\d+\] Shrinking ISR from {INTS} to (?<isr>{INTS})\.?(?: Leader: .*)?",
    ),
    _s(
        "isr.expanding",
        "isr_changed",
        on_message=True,
        reason="expanding",
        anchor="expanding isr from",
        pattern=r"\[Partition {T} broker=\d+\] Expanding ISR from {INTS} to (?<isr>{INTS})\.?",
    ),
    _s(
        "isr.updated",
        "isr_changed",
        on_message=True,
        reason="updated",
        anchor="isr updated to",
        pattern=r"\[Partition {T} broker=\d+\] ISR updated to (?<isr>{INTS}) ?(?:\(under-min-isr\))? ?and "
        r"version updated "
        r"to \[?(?<version>\d+)\]?",
    ),
    _s(
        "isr.shrinking.old",
        "isr_changed",
        reason="shrinking",
        anchor="shrinking isr for",
        pattern=r"shrinking ISR for partition {T} from {INTS} to (?<isr>{INTS}).*",
    ),
    _s(
        "isr.expanding.old",
        "isr_changed",
        reason="expanding",
        anchor="expanding isr for",
        pattern=r"expanding ISR for partition {T} from {INTS} to (?<isr>{INTS}).*",
    ),
    _s(
        "isr.conflict",
        "isr_version_conflict",
        on_message=True,
        anchor="cached zkversion",
        pattern=r"\[?Partition {T} (?:broker=|on broker )\d+\]?:? Cached zkVersion \[?(?<version>\d+)\]? not "
        r"equal to that "
        r"in zookeeper.*",
    ),
    _s(
        "leader.old",
        "leader_started",
        on_message=True,
        anchor="starts at leader epoch",
        pattern=r"\[Partition {T} broker=\d+\] [\w.-]+ starts at [Ll]eader [Ee]poch (?<leader_epoch>\d+) from "
        r"offset .*",
    ),
    # words so short that they mean this only where the logger is KafkaServer
    _s(
        "controlled.started",
        "controlled_shutdown_started",
        anchor="kafkaserver: starting controlled shutdown",
        pattern=r"starting controlled shutdown",
    ),
    _s("server.starting", "server_starting", anchor="kafkaserver: starting", pattern=r"starting"),
    _s("server.started", "server_started", anchor="kafkaserver: started", pattern=r"started"),
    _s("server.stopping", "server_stopping", anchor="kafkaserver: shutting down", pattern=r"shutting down"),
    _s("server.stopped", "server_stopped", anchor="kafkaserver: shut down completed", pattern=r"shut down completed"),
    _s(
        "controlled.done",
        "controlled_shutdown_done",
        anchor="kafkaserver: controlled shutdown request returned successfully",
        pattern=r"controlled shutdown request returned successfully.*",
    ),
    _s(
        "controlled.succeeded",
        "controlled_shutdown_done",
        anchor="kafkaserver: controlled shutdown succeeded",
        pattern=r"controlled shutdown succeeded.*",
    ),
    _s(
        "controlled.failed",
        "controlled_shutdown_failed",
        anchor="kafkaserver: proceeding to do an unclean shutdown",
        pattern=r"proceeding to do an unclean shutdown (?<reason>.*)",
    ),
    _s(
        "registered",
        "registered",
        anchor="registered broker ",
        pattern=r"registered broker \d+ at path .*?(?:czxid \(broker epoch\): (?<broker_epoch>\d+))?",
    ),
    _s(
        "directory.failed",
        "log_directory_failed",
        anchor="stopping serving logs in dir",
        pattern=r"stopping serving logs in dir (?<reason>.*)",
    ),
    _s(
        "directory.replicas",
        "log_directory_failed",
        anchor="stopping serving replicas in dir",
        pattern=r"stopping serving replicas in dir (?<reason>.*)",
    ),
)
