"""The series that Prometheus would have scraped when an alert rule has to fire, as `promtool test rules` wants them.

Of a healthy cluster, all series of the rules; an alert's row names the difference, and the broker that it is about.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

_KAFKA: Final = "kafka_controller_kafkacontroller_"
_CONTROLLER: Final = 'job="klamm",instance="one"'
_STANDBY: Final = 'job="klamm",instance="two"'
#: a minute apart, for an hour: promtool writes it value (+ step) x times
_STEADY: Final = "x60"


class Fires(NamedTuple):
    series: dict[str, str]
    labels: dict[str, str]
    value: str = ""  # as `$value` shows it


#: a controller and a standby, nothing wrong
HEALTHY: Final = {
    f"{_KAFKA}activecontrollercount{{{_CONTROLLER}}}": "1",
    f"{_KAFKA}activecontrollercount{{{_STANDBY}}}": "0",
    f"{_KAFKA}offlinepartitionscount{{{_CONTROLLER}}}": "0",
    f"{_KAFKA}fencedbrokercount{{{_CONTROLLER}}}": "0",
    f"{_KAFKA}topicsineligibletodeletecount{{{_CONTROLLER}}}": "0",
    f"kafka_controller_controllerstats_uncleanleaderelections_total{{{_CONTROLLER}}}": "3",
    f"klamm_under_replicated_partitions{{{_CONTROLLER}}}": "0",
    f'klamm_outbox_age_seconds{{{_CONTROLLER},broker_id="2"}}': "0",
    f"klamm_registered{{{_CONTROLLER}}}": "1",
    f"klamm_registered{{{_STANDBY}}}": "1",
    f"klamm_controller_epoch{{{_CONTROLLER}}}": "7",
    f"klamm_controller_is_kafka{{{_CONTROLLER}}}": "0",
    f"klamm_controller_is_kafka{{{_STANDBY}}}": "0",
    f"klamm_parked_subjects{{{_CONTROLLER}}}": "0",
    f"klamm_refused_subjects{{{_CONTROLLER}}}": "0",
    f"klamm_unreadable_znodes{{{_CONTROLLER}}}": "0",
    f'klamm_refused_partitions{{{_CONTROLLER},broker_id="2"}}': "0",
    f"klamm_log_lines_lost_total{{{_CONTROLLER}}}": "4",
    f"klamm_partition_series_left_out{{{_CONTROLLER}}}": "0",
    f'klamm_event_loop_lag_seconds_bucket{{{_CONTROLLER},le="0.1"}}': "0+100",
    f'klamm_event_loop_lag_seconds_bucket{{{_CONTROLLER},le="1.0"}}': "0+100",
    f'klamm_event_loop_lag_seconds_bucket{{{_CONTROLLER},le="+Inf"}}': "0+100",
}
_JOB: Final = {"job": "klamm"}
_ONE, _TWO = {"job": "klamm", "instance": "one"}, {"job": "klamm", "instance": "two"}
FIRES: Final = {
    "KlammNoController": Fires({f"{_KAFKA}activecontrollercount{{{_CONTROLLER}}}": "0"}, _JOB),
    # nor is there no controller then
    "KlammStandsBy": Fires(
        {f"klamm_controller_is_kafka{{{_STANDBY}}}": "1", f"{_KAFKA}activecontrollercount{{{_CONTROLLER}}}": "0"}, _JOB
    ),
    "KlammSeveralControllers": Fires({f"{_KAFKA}activecontrollercount{{{_STANDBY}}}": "1"}, _JOB, "2"),
    "KlammNotScraped": Fires(
        {f"{_KAFKA}activecontrollercount{{{_CONTROLLER}}}": "", f"{_KAFKA}activecontrollercount{{{_STANDBY}}}": ""}, {}
    ),
    "KlammOfflinePartitions": Fires({f"{_KAFKA}offlinepartitionscount{{{_CONTROLLER}}}": "5"}, _JOB, "5"),
    "KlammUncleanElection": Fires(
        {f"kafka_controller_controllerstats_uncleanleaderelections_total{{{_CONTROLLER}}}": "0+1"}, _JOB
    ),
    "KlammUnderReplicatedPartitions": Fires({f"klamm_under_replicated_partitions{{{_CONTROLLER}}}": "6"}, _JOB, "6"),
    "KlammBrokerGone": Fires({f"{_KAFKA}fencedbrokercount{{{_CONTROLLER}}}": "2"}, _JOB, "2"),
    "KlammBrokerNotTold": Fires(
        {f'klamm_outbox_age_seconds{{{_CONTROLLER},broker_id="2"}}': "0+60"}, {"job": "klamm", "broker_id": "2"}
    ),
    "KlammCutOff": Fires({f"klamm_registered{{{_STANDBY}}}": "0"}, _TWO),
    "KlammControllerMovesOften": Fires({f"klamm_controller_epoch{{{_CONTROLLER}}}": "0x20 1+1x9 10x29"}, _JOB, "10"),
    "KlammSubjectsLeftOut": Fires({f"klamm_parked_subjects{{{_CONTROLLER}}}": "1"}, _JOB, "1"),
    "KlammWritesRefused": Fires({f"klamm_refused_subjects{{{_CONTROLLER}}}": "1"}, _JOB, "1"),
    "KlammUnreadableZnodes": Fires({f"klamm_unreadable_znodes{{{_CONTROLLER}}}": "1"}, _JOB, "1"),
    "KlammBrokerRefuses": Fires(
        {f'klamm_refused_partitions{{{_CONTROLLER},broker_id="2"}}': "3"}, {"job": "klamm", "broker_id": "2"}, "3"
    ),
    "KlammDeletionsWait": Fires({f"{_KAFKA}topicsineligibletodeletecount{{{_CONTROLLER}}}": "1"}, _JOB, "1"),
    "KlammLogLinesLost": Fires({f"klamm_log_lines_lost_total{{{_CONTROLLER}}}": "0+1"}, _ONE),
    "KlammEventLoopLate": Fires(
        {f'klamm_event_loop_lag_seconds_bucket{{{_CONTROLLER},le="0.1"}}': "0+10"}, {"instance": "one"}
    ),
    "KlammPartitionSeriesLeftOut": Fires({f"klamm_partition_series_left_out{{{_CONTROLLER}}}": "1"}, _JOB),
}


def unit_tests(written: dict[str, Any]) -> dict[str, Any]:
    """Each alert alone in its row, an hour later; none at all of a healthy cluster. `written`: the rules' file."""
    rules = {rule["alert"]: rule for group in written["groups"] for rule in group["rules"]}
    tests = [_test(HEALTHY, {name: [] for name in rules})]
    for name, row in FIRES.items():
        rule = rules[name]
        alert = {
            "exp_labels": {**row.labels, **rule["labels"]},
            "exp_annotations": {key: _filled_in(text, row) for key, text in rule["annotations"].items()},
        }
        tests.append(_test({**HEALTHY, **row.series}, {other: [alert] if other == name else [] for other in rules}))
    return {"rule_files": ["/etc/prometheus/alerts.yaml"], "evaluation_interval": "1m", "tests": tests}


def _test(series: dict[str, str], expected: dict[str, list[Any]]) -> dict[str, Any]:
    values = {name: value if "x" in value else f"{value}{_STEADY}" for name, value in series.items() if value}
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": value} for name, value in values.items()],
        "alert_rule_test": [
            {"eval_time": "1h", "alertname": name, "exp_alerts": alerts} for name, alerts in expected.items()
        ],
    }


def _filled_in(text: str, row: Fires) -> str:
    for label, value in row.labels.items():
        text = text.replace(f"{{{{ $labels.{label} }}}}", value)
    return text.replace("{{ $value }}", row.value)
