"""Whoever gets a redacted report learns no host and no address, wherever they stood."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparkjobs.answers.local import answers_for
from sparkjobs.bundle import bundle_of, silver_of
from sparkjobs.report.accounting import Input
from sparkjobs.report.redact import Redactor
from sparkjobs.report.write import quoting, write_report

TS = "2026-11-18 07:49:10,504"
#: what must not be seen in a redacted report, in any case
SECRETS = (
    *("kafka-9", "kafka9", "example.com", "acme", "db3", "10.0.0.7", "10.1.2.3", "2001:db8", "fe80", "srv-intern"),
    *("kk-3", "prod-kafka-1", "zk-secret"),
)
LINES = (
    f"[{TS}] INFO [Controller id=1 epoch=3] Received response LeaderAndIsrResponseData(errorCode=0) for request "
    "LEADER_AND_ISR with correlation id 1 sent to broker kafka-9.example.com:9092 (id: 2 rack: r1) "
    "(state.change.logger)",
    f"[{TS}] INFO [Controller id=1] Newly added brokers: , deleted brokers: 2, bounced brokers: , all live brokers: 1 "
    "(kafka.controller.KafkaController)",
    f"[{TS}] WARN Session 0x100000be1f60007 for server zk-secret.acme.internal/10.0.0.7:2181, Closing socket "
    "connection. Attempting reconnect except it is a SessionExpiredException. (org.apache.zookeeper.ClientCnxn)",
    "nonsense about 10.1.2.3 and [2001:db8::7]:9092 and fe80::1%eth0 and ::ffff:10.1.2.3",
    "not all of it is of Java: KAFKA-9.EXAMPLE.COM, kafka-9, and host=prod-kafka-1",
    "id:3,host:kk-3,port:9092 and again kk-3",
    "oops UnknownHostException: db3",
    "srv-intern.acme.corp said so, db3 too",
)


@pytest.mark.parametrize("folder", ["kafka-9.example.com", "broker1"])
@pytest.mark.parametrize("name", ["state-change.log", "server.log.kafka9.acme.corp.gz.log"])
def test_no_host_and_no_address_is_left_in_any_file(tmp_path: Path, folder: str, name: str) -> None:
    path = tmp_path / "logs" / "acme" / folder / name
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(LINES) + "\n")
    bundle = bundle_of([str(path)], "shop", [], None)
    silver = silver_of(bundle)
    answers = answers_for(silver.ingested.events)
    assert len(silver.ingested.quarantine) == 5
    read = Input(silver.ingested.counts, silver.ingested.quarantine, silver.skew)
    quote = quoting(bundle.files, silver.ingested.events, answers)
    write_report(tmp_path / "open", answers, quote, read)
    write_report(tmp_path / "out", answers, quote, read, redact=True)
    open_page = (tmp_path / "open" / "report.html").read_text()
    assert "10.1.2.3" in open_page
    for written in (tmp_path / "out").rglob("*"):
        if written.is_file():
            table = written.suffix == ".parquet"
            text = str(pq.read_table(written).to_pylist()) if table else written.read_text()
            assert [secret for secret in SECRETS if secret in text.lower()] == [], written.name


def test_a_host_has_one_name_everywhere_and_the_rest_stays_as_it_was() -> None:
    hide = Redactor()
    texts = ["to broker kafka-9.example.com:9092 (id: 1)", "kafka-9.example.com went", "10.0.0.7:9092", "10.0.0.70"]
    hide.learn(texts)
    assert [hide(text) for text in texts] == ["to broker host-1:9092 (id: 1)", "host-1 went", "host-2:9092", "host-3"]


@pytest.mark.parametrize(
    "text",
    [
        "KafkaController.scala:103 at 08:15:59",
        "[2026-11-18 07:49:10,504] INFO [Controller id=1 epoch=4] Changed partition orders.v1-0 state",
        "(kafka.controller.KafkaController) (state.change.logger) (org.apache.zookeeper.ClientCnxn)",
        "session 0x10000148b1f0006, version 3.9.1, correlation id 2001, ISR [1,2]",
        "2026-11-18T07:49:10,504 at kafka.server.KafkaApis.handle(KafkaApis.scala:250)",
    ],
)
def test_what_is_no_host_is_left_alone(text: str) -> None:
    hide = Redactor()
    hide.learn([text])
    assert hide(text) == text
