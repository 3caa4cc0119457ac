"""The messages of brokers in state-change.log about the controller's requests, 0.8 to 3.9, as in `shapes_controller`.
Data.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from sparkjobs.parse.patterns import Shape, shape_for

_b = partial(shape_for, role="broker")
_TO = r"become-(?<to_state>leader|follower)"
_REQUEST = r"LeaderAndIsr request (?:with )?{ID} {BY}"

BROKER_SHAPES: Final[tuple[Shape, ...]] = (
    _b(
        "cached",
        "metadata_cached",
        api="UpdateMetadata",
        pattern=r"cached leader info {ASKED} for partition {T} in response to UpdateMetadata request sent by "
        r"controller "
        r"(?<controller>\d+) epoch (?<controller_epoch>\d+) with {ID}",
    ),
    _b(
        "cached.batch",
        "metadata_cached",
        api="UpdateMetadata",
        pattern=r"add (?<n_partitions>\d+) partitions and deleted \d+ partitions from metadata cache in response to "
        r"UpdateMetadata request sent by controller (?<controller>\d+) epoch (?<controller_epoch>\d+) with {ID}",
    ),
    _b(
        "uncached",
        "metadata_deleted",
        api="UpdateMetadata",
        pattern=r"deleted partition {T} from metadata cache in response to UpdateMetadata request sent by controller "
        r"(?<controller>\d+) epoch (?<controller_epoch>\d+) with {ID}",
    ),
    _b(
        "uncached.topic",
        "metadata_deleted",
        api="UpdateMetadata",
        pattern=r"deleted partitions for topic (?<topic>[\w.-]+) from metadata cache in response to UpdateMetadata "
        r"request +sent by controller (?<controller>\d+) epoch (?<controller_epoch>\d+) with {ID}",
    ),
    _b(
        "received.unavailable",
        "request_ignored",
        api="LeaderAndIsr",
        error="leader_unavailable",
        anchor="received leaderandisrrequest",
        pattern=r"received LeaderAndIsrRequest with {ID} {BY} for partition {T} .*?cannot become follower since "
        r"the new "
        r"leader (?<leader>-?\d+) is unavailable\.?",
    ),
    _b(
        "started.0_8_0",
        "request_started",
        api="LeaderAndIsr",
        anchor="received leaderandisr request",
        mark=" starting the become-",
        pattern=rf"received {_REQUEST} starting the {_TO} transition for partition {{T}}",
    ),
    _b(
        "received",
        "request_received",
        api="LeaderAndIsr",
        pattern=r"received LeaderAndIsr request {ASKED_OF} {ID} {BY}(?: for partition {T})?",
    ),
    _b(
        "received.stop",
        "request_received",
        api="StopReplica",
        pattern=r"received StopReplica request "
        r"(?:StopReplicaPartitionState)?\(.*?leaderEpoch=(?<leader_epoch>-?\d+).*?\) "
        r"{ID} {BY} for partition {T}",
    ),
    _b(
        "received.metadata.stale",
        "request_ignored",
        api="UpdateMetadata",
        error="stale_controller_epoch",
        pattern=r"received update metadata request with {ID} from an old controller (?<controller>\d+) with epoch "
        r"(?<controller_epoch>\d+)\. Latest known controller epoch is \d+",
    ),
    _b(
        "received.0_8_0",
        "request_received",
        api="LeaderAndIsr",
        anchor="handling leaderandisr request",
        mark=" received from controller ",
        pattern=r"handling LeaderAndIsr request {ID} received {BY} for partition {T}",
    ),
    _b(
        "done.0_8_0",
        "request_done",
        api="LeaderAndIsr",
        pattern=r"handled LeaderAndIsr request {ID} received {BY} for partition {T}",
    ),
    _b(
        "started",
        "request_started",
        api="LeaderAndIsr",
        pattern=rf"handling {_REQUEST} (?:starting the {_TO} transition for partition {{T}}"
        r"(?: with leader (?<leader>-?\d+))?|for (?<n_partitions>\d+) partitions)",
    ),
    _b(
        "done",
        "request_done",
        api="LeaderAndIsr",
        pattern=rf"completed {_REQUEST} for the {_TO} transition for partition {{T}}(?: with leader (?<leader>-?\d+))?",
    ),
    _b(
        "step.completed",
        "request_step",
        reason="completed",
        pattern=rf"completed (?:the )?{_TO} transition for partition {{T}}",
    ),
    _b(
        "done.batch",
        "request_done",
        api="LeaderAndIsr",
        pattern=r"finished LeaderAndIsr request in (?<elapsed_ms>\d+)ms {ID} {BY} for (?<n_partitions>\d+) partitions",
    ),
    _b(
        "ignored",
        "request_ignored",
        api="LeaderAndIsr",
        anchor="ignoring leaderandisr request",
        pattern=r"ignoring LeaderAndIsr request (?:{BY} with {ID}(?: epoch (?<controller_epoch>-?\d+))?|with {ID} {BY})"
        r"(?: for partition {T})? (?<reason>(?:since|as) .*)",
    ),
    _b(
        "ignored.0_8_1",
        "request_ignored",
        api="LeaderAndIsr",
        pattern=r"received invalid LeaderAndIsr request with {ID} {BY} (?<reason>with an older leader epoch \d+ for "
        r"partition {T}, current leader epoch is \d+)",
    ),
    _b(
        "ignored.unavailable",
        "request_ignored",
        api="LeaderAndIsr",
        error="leader_unavailable",
        anchor="ignored the become",
        mark=" cannot be found in live ",
        pattern=rf"ignored the {_TO} state change with {{ID}} controller (?<controller>\d+) epoch "
        r"(?<controller_epoch>\d+) for partition Topic: (?<topic>[\w.-]+); Partition: (?<partition>\d+);.* since the "
        r"designated leader (?<leader>-?\d+) cannot be found in live .*",
    ),
    _b(
        "ignored.stopping",
        "request_ignored",
        api="LeaderAndIsr",
        anchor="ignored the become",
        pattern=rf"ignored the {_TO} state change with {{ID}} {{BY}} (?:for partition {{T}} )?(?<reason>since .*)",
    ),
    _b(
        "ignored.0_8_0",
        "request_ignored",
        api="LeaderAndIsr",
        anchor="discarded the become",
        pattern=rf"discarded the {_TO} request with {{ID}} {{BY}} for partition {{T}} (?<reason>since .*)",
    ),
    _b(
        "leader",
        "leader_started",
        anchor="leader ",
        mark=" starts at leader epoch ",
        pattern=r"leader {T} (?:with topic id \S* )?starts at leader epoch (?<leader_epoch>\d+) from offset "
        r"(?<offset>-?\d+) with "
        r"(?:partition epoch (?<version>\d+),? (?:and )?)?high watermark -?\d+,? ISR \[(?<isr>{INTS})\],? ?"
        r".*Previous leader.*",
    ),
    _b(
        "follower",
        "follower_started",
        pattern=r"follower {T} (?:with topic id \S* )?starts at leader epoch (?<leader_epoch>\d+) from offset "
        r"(?<offset>-?\d+) with "
        r"(?:partition epoch (?<version>\d+),? (?:and )?)?high watermark -?\d+\.(?: Current leader is "
        r"(?<leader>-?\d+)\.)? ?.*",
    ),
    _b(
        "stop.started",
        "request_started",
        api="StopReplica",
        anchor="handling stopreplica request",
        pattern=r"handling StopReplica request {ID} {BY} for (?<n_partitions>\d+) partitions",
    ),
    _b(
        "stop.started.old",
        "request_started",
        api="StopReplica",
        pattern=r"handling stop replica (?:\(delete=\w+\) )?for partition {T}",
    ),
    _b(
        "stop.done",
        "request_done",
        api="StopReplica",
        anchor="finished handling stop",
        pattern=r"finished handling stop replica (?:\(delete=\w+\) )?for partition {T}",
    ),
    _b(
        "stop.ignored.old",
        "request_ignored",
        api="StopReplica",
        anchor="ignoring stop replica",
        pattern=r"ignoring stop replica \(delete=\w+\) for partition {T} (?<reason>.*)",
    ),
    _b(
        "stop.ignored",
        "request_ignored",
        api="StopReplica",
        anchor="ignoring stopreplica request",
        pattern=r"ignoring StopReplica request .*?(?:{BY} with {ID}.*?|with {ID} {BY}.*?)(?:for partition {T} )?"
        r"(?<reason>(?:since|as) .*)",
    ),
    _b(
        "step.fetchers",
        "request_step",
        reason="stopped fetchers",
        anchor="stopped fetchers as part of",
        pattern=rf"stopped fetchers as part of (?:LeaderAndIsr request {{ID}} {{BY}} as part of the )?{_TO} "
        r"(?:transition|request)(?: {BY} with {ID})?"
        r"(?: \(last update controller epoch -?\d+\))? for (?:partition {T}|(?<n_partitions>\d+) partitions)"
        r"(?: with leader (?<leader>-?\d+))?(?: \(last update controller epoch -?\d+\))?",
    ),
    _b(
        "step.truncated",
        "request_step",
        reason="truncated logs",
        anchor="truncated logs and checkpointed",
        pattern=rf"truncated logs and checkpointed recovery boundaries for partition {{T}} as part of {_TO} request.*",
    ),
    _b(
        "step.fetcher",
        "request_step",
        reason="started fetcher",
        anchor="started fetcher to new leader",
        pattern=rf"started fetcher to new leader as part of {_TO} request {{BY}} with {{ID}} for partition {{T}}.*",
    ),
    _b(
        "step.skipped",
        "request_step",
        anchor="skipped the",
        pattern=rf"skipped the (?<reason>adding-fetcher step of the|step of the)? ?{_TO} state change"
        r".*?(?:with {ID} {BY}.*?)?for (?:the )?partition {T}.*|skipped the (?<reason>.*)",
    ),
    _b(
        "step.recovering",
        "request_step",
        reason="was recovering",
        pattern=r"the topic partition {T} was marked as RECOVERING.*",
    ),
    _b(
        "step.aborted",
        "request_step",
        reason="aborted",
        anchor="aborted the become",
        pattern=rf"aborted the {_TO} state change with {{ID}} {{BY}} for partition {{T}} new leader (?<leader>-?\d+)",
    ),
    _b("step.updated", "request_step", anchor="updated replica", pattern=r"updated replica (?<reason>.*)"),
)
