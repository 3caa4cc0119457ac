"""Round trips whose answers have no number, put together by their subject."""

from __future__ import annotations

from sparkjobs.clocks.skew import unnumbered_trips_in
from tests.spark.test_skew import START_MS, an_event


def test_an_answer_without_a_number_is_to_the_oldest_request_about_its_partition() -> None:
    """Broker 2 is 1,000 ms ahead. Two requests about a partition are on their way; one before was never answered."""
    said = {"controller": 1, "controller_epoch": 1, "topic": "t"}
    events = []
    for number, (partition, sent, received, done, answered) in enumerate(
        [(0, 0, 4, 9, None), (0, 10_000, 10_005, 10_010, 10_016), (0, 10_001, 10_018, 10_019, 10_023), (1, 5, 9, 9, 14)]
    ):
        state = {"leader_epoch": number, "partition": partition}
        asked = {**said, "api": "LeaderAndIsr", "correlation_id": number, "partition": partition}
        sending = {**said, **state, "api": "LeaderAndIsr", "peer_broker": 2}
        events += [
            an_event(1, START_MS + sent, event="request_sent", **sending),
            an_event(2, START_MS + received + 1_000, event="request_received", **{**asked, **state}),
            an_event(2, START_MS + done + 1_000, event="request_done", **asked),
        ]
        if answered is not None:
            answer = {**said, "partition": partition, "peer_broker": 2}
            events.append(an_event(1, START_MS + answered, event="response_received", **answer))
    found = sorted(trip[2:] for _, trip in unnumbered_trips_in(events))
    assert found == [
        (START_MS + 1_009, 999, 5),
        (START_MS + 11_005, 999, 6),
        (START_MS + 11_018, 1_006, 11),
    ]
