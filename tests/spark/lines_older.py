"""Lines of Kafka 0.8.0 to 2.5 that no later one writes, and the meaning of each, as in `lines`."""

from __future__ import annotations

from typing import Any, Final

OLDER: Final[tuple[tuple[str, str, dict[str, Any]], ...]] = (
    (
        "Broker 2 ignoring LeaderAndIsr request from controller 3 with correlation id 1 epoch 3 for partition [p,2] "
        "since its associated leader epoch 2 is old. Current leader epoch is 2",
        "state.change.logger",
        {"event": "request_ignored", "error": "same_leader_epoch"},
    ),
    (
        "[Broker id=2] Ignoring LeaderAndIsr request from controller 3 with correlation id 1 epoch 3 for partition p-2 "
        "since its associated leader epoch 2 is not higher than the current leader epoch 12",
        "state.change.logger",
        {"event": "request_ignored", "error": "stale_leader_epoch"},
    ),
    (
        "Broker 3 received invalid LeaderAndIsr request with correlation id 17 from controller 1 epoch 1 with an older "
        "leader epoch 1 for partition [orders,4], current leader epoch is 2",
        "state.change.logger",
        {
            **{"event": "request_ignored", "error": "stale_leader_epoch", "topic": "orders", "partition": 4},
            **{"controller": 1, "controller_epoch": 1, "correlation_id": 17},
        },
    ),
    (
        "Broker 2 ignored the become-follower state change with correlation id 19 controller 1 epoch 1 for partition "
        "Topic: single; Partition: 1; Leader: None; AssignedReplicas: 2; InSyncReplicas:  since the designated leader "
        "-1 cannot be found in live or shutting down brokers id:1,host:h,port:25829,id:3,host:h,port:30350",
        "state.change.logger",
        {"event": "request_ignored", "error": "leader_unavailable", "topic": "single", "partition": 1, "leader": -1},
    ),
    (
        "Broker 2 discarded the become-leader request with correlation id 5 from controller 1 epoch 1 for partition "
        "[orders,0] since current leader epoch 3 is >= the request's leader epoch 3",
        "state.change.logger",
        {"event": "request_ignored", "error": "same_leader_epoch", "topic": "orders", "to_state": "leader"},
    ),
    (
        "Broker 2 handling LeaderAndIsr request correlation id 5 received from controller 1 epoch 4 for partition "
        "[o,3]",
        "state.change.logger",
        {"event": "request_received", "api": "LeaderAndIsr", "controller": 1, "controller_epoch": 4, "topic": "o"},
    ),
    (
        "Broker 2 received LeaderAndIsr request correlationId 5 from controller 1 epoch 4 starting the become-follower "
        "transition for partition [o,0]",
        "state.change.logger",
        {"event": "request_started", "correlation_id": 5, "to_state": "follower"},
    ),
    (
        "Broker 2 handled LeaderAndIsr request correlationId 5 received from controller 1 epoch 4 for partition [o,0]",
        "state.change.logger",
        {"event": "request_done", "api": "LeaderAndIsr", "correlation_id": 5, "partition": 0},
    ),
    (
        "Controller 1 epoch 4 sending become-leader LeaderAndIsr request with correlationId 5 to broker -1 for "
        "partition [o,0]",
        "state.change.logger",
        {"event": "request_sent", "peer_broker": -1, "correlation_id": 5, "leader_epoch": None, "to_state": "leader"},
    ),
    (
        "Controller 0 epoch 4 received response {error_code=0} for a request sent to broker Node(3, 127.0.0.1, 9092)",
        "state.change.logger",
        {"event": "response_received", "api": None, "correlation_id": None, "peer_broker": 3, "topic": None},
    ),
    (
        "[Broker id=1] Stopped fetchers as part of become-leader request from controller 2 epoch 1 with correlation id "
        "3 for partition orders-0 (last update controller epoch 1)",
        "state.change.logger",
        {"event": "request_step", "reason": "stopped fetchers", "topic": "orders", "correlation_id": 3},
    ),
    (
        "[Controller 2]: Broker 2 resigned as the controller",
        "kafka.controller.KafkaController",
        {"event": "controller_resigned", "broker": 2},
    ),
    (
        "zookeeper state changed (Expired)",
        "org.I0Itec.zkclient.ZkClient",
        {"event": "session_expired", "broker": 9, "role": "server"},
    ),
)
