"""Kafka's objects as they are printed in the middle of a line, as fragments of patterns.

A fragment names what it captures like a column: `(?<leader>-?\\d+)`. `{NAME}` in a pattern stands for a fragment of
this page. Versions and patch releases differ in which parts there are, so parts are optional and no version is asked.
A name may occur several times as long as one line can hold only one of them. Data only.
"""

from __future__ import annotations

from typing import Final

_INTS = "{INTS}"
_BROKER_STATE = r"BrokerState\(brokerId=\d{1,9}, brokerEpoch=-?\d+\)"
_BROKER_STATES = f"(?:{_INTS}|{_BROKER_STATE}(?:, {_BROKER_STATE})*)"

#: 1.1 and later; 3.2 has a recovery state, 3.3 calls the version partitionEpoch, 3.5 has broker epochs in the ISR
_LEADER_AND_ISR = (
    r"LeaderAndIsr\(leader=(?<leader>-?\d+), leaderEpoch=(?<leader_epoch>-?\d+), "
    rf"isr(?:WithBrokerEpoch)?=(?:List|Vector|ArrayBuffer)?\(?(?<isr>{_BROKER_STATES})\)?, "
    r"(?:leaderRecoveryState=(?<recovery>\w+), )?(?:zkVersion|partitionEpoch)=(?<version>-?\d+)\)"
)
_LEADER_AND_ISR_0_8_1 = r'\{"leader":(?<leader>-?\d+),"leader_epoch":(?<leader_epoch>-?\d+),"isr":\[(?<isr>{INTS})\]\}'
_LEADER_AND_ISR_0_8_0 = (
    r'\{ "ISR":"(?<isr>{INTS})", "leader":"(?<leader>-?\d+)", "leaderEpoch":"(?<leader_epoch>-?\d+)" \}'
)
#: LeaderIsrAndControllerEpoch, all versions; its controller epoch is that of the decision, not of the sender
_STATE_AND_EPOCH = (
    r"\(Leader:(?<leader>-?\d+),ISR:(?<isr>{INTS}),(?:LeaderRecoveryState:(?<recovery>\w+),)?"
    r"LeaderEpoch:(?<leader_epoch>-?\d+),(?:(?:Zk|zk)Version:(?<version>-?\d+),)?"
    r"(?:PartitionEpoch:(?<version>-?\d+),)?ControllerEpoch:-?\d+\)"
)
#: 0.8 to 0.11; its brackets never balanced
_STATE_INFO = (
    r"\(LeaderAndIsrInfo:\(Leader:(?<leader>-?\d+),ISR:(?<isr>{INTS}),LeaderEpoch:(?<leader_epoch>-?\d+),"
    r"ControllerEpoch:-?\d+\),ReplicationFactor:\d+\),AllReplicas:(?<replicas>{INTS})\)"
)
_REQUEST_STATE = (
    r"controllerEpoch=-?\d+, leader=(?<leader>-?\d+), leaderEpoch=(?<leader_epoch>-?\d+), "
    rf"isr=\[?(?<isr>{_INTS})\]?, (?:zkVersion|partitionEpoch)=(?<version>-?\d+), replicas=\[?(?<replicas>{_INTS})\]?"
    rf"(?:, addingReplicas=\[(?<added>{_INTS})\], removingReplicas=\[(?<removed>{_INTS})\])?"
    rf"(?:, offlineReplicas=\[(?<removed>{_INTS})\])?(?:, isNew=\w+)?(?:, leaderRecoveryState=(?<recovery>\d+))?\)"
)
#: its own name of the partition
_NAMED = r"topicName='(?<topic>[\w.-]*)', partitionIndex=(?<partition>\d+), "
_UNNAMED = r"(?:topicName='[^']*', partitionIndex=\d+, )?"
_STRUCT = r"(?:LeaderAndIsr|UpdateMetadata)?PartitionState\("

FRAGMENTS: Final[dict[str, str]] = {
    # a partition is printed as [topic,0] or topic-0, sometimes both in one file
    "T": r"\[?(?<topic>[\w.-]+)[-,](?<partition>\d+)\]?",
    "STATE": f"(?:{_LEADER_AND_ISR}|{_LEADER_AND_ISR_0_8_1}|{_LEADER_AND_ISR_0_8_0})",
    "STATE_AND_EPOCH": _STATE_AND_EPOCH,
    # what a request says of a partition, where the line names the partition elsewhere
    "ASKED": f"(?:{_STRUCT}{_UNNAMED}{_REQUEST_STATE}|{_STATE_INFO}|{_STATE_AND_EPOCH})",
    # the same, where it may be named only there
    "ASKED_OF": f"(?:{_STRUCT}(?:{_NAMED})?{_REQUEST_STATE}|{_STATE_INFO}|{_STATE_AND_EPOCH})",
    "BY": r"from controller (?<controller>\d+)(?:,? epoch (?<controller_epoch>-?\d+))?",
    "ID": r"(?:correlation ?[Ii]d:?|correlationId) (?<correlation_id>\d+)",
    "BROKERS": rf"(?:[A-Z]\w*)?[\[(]{_INTS}[\])]",
    "ASSIGNMENT": rf"ReplicaAssignment\(replicas=(?<replicas>{_INTS}), addingReplicas=(?<added>{_INTS}), "
    rf"removingReplicas=(?<removed>{_INTS})\)",
    "LIST": rf"(?:[A-Z]\w*)?[\[(]?(?<replicas>{_INTS})[\])]?",
    # host:port (id: 3 rack: null), Node(3, host, port), id:3,host:h,port:9092, or host:port:3
    "PEER": r"(?:\S* ?\(id: (?<peer_broker>\d+) rack: [^)]*\)|Node\((?<peer_broker>\d+), [^)]*\)|"
    r"id:(?<peer_broker>\d+),host:.*|[^ ,]+:(?<peer_broker>\d+))",
    "FROM_TO": r"from (?<from_state>\w+) to (?<to_state>\w+)",
    # the last: the others are made of it
    "INTS": r"(?:\d{1,9}(?:, ?\d{1,9})*)?",
}
