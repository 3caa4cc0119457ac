"""A reader of a redacted report learns no host and no address, wherever they stood."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparkjobs.commands.inputs import inputs_of
from sparkjobs.report.page import Input
from sparkjobs.report.redact import Redactor, outline
from sparkjobs.report.write import write_report
from tests.spark.plain import answers_for, quoting_all
from tests.spark.reading import silver_of

TS = "2026-11-18 07:49:10,504"
#: words that must not be seen in a redacted report, in any case
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
DATA = Path(__file__).parents[1] / "data" / "redact" / "lines.txt"
#: the names in place of those redacted
MARK = re.compile(r"(?i)mark(?:host|rack|client|user)|10\.66\.77|zoë|straße|bänk|Geheim")
#: of clusters that were not recorded here: names beside addresses, certificates, logins, properties, beyond ASCII
WORDINGS = (
    *DATA.read_text(encoding="utf-8").splitlines(),
    f"[{TS}] INFO Opening socket connection to server markhost7.prod.acme.de/10.66.77.5:2181. (org.apache.zookeeper)",
    f"[{TS}] INFO Opening socket connection to server markhost/10.66.77.5 will not attempt to authenticate",
    f"[{TS}] INFO [SocketServer] Created EndPoint(markhost1.bank.de,9092,ListenerName(SSL),SSL)",
    f"[{TS}] WARN connection to broker Node(7, markhost9, 9092) was unsuccessful",
    f"[{TS}] INFO zookeeper.connect = markhost1,markhost2:2181/markhost-chroot",
    f'[{TS}] INFO Registered {{"host":"markhost4","port":9092,"rack":"markrack2"}}',
    f"[{TS}] INFO principal=CN=markuser.bank.de, OU=markuser Ops, O=markuser Bank AG, L=X, C=DE (kafka.request)",
    f"[{TS}] INFO Successfully authenticated client: authenticationID=markuser; authorizationID=markuser.",
    f"[{TS}] INFO [Producer clientId=markclient-3, transactionalId=x] ProducerId set",
    f"[{TS}] INFO client.id = markclient.app",
    f"[{TS}] INFO broker.rack = markrack-a",
    f"[{TS}] INFO [AdminClient clientId=adminclient-1] bootstrap.servers = [markhost:9092, markhost2:9092]",
    f"[{TS}] ERROR java.net.UnknownHostException: markhost: Name or service not known",
    f"[{TS}] INFO principal = kafka/markhost1.corp@MARKUSER.REALM",
    f"[{TS}] INFO Loading /data/markhost3/kafka-logs/orders-0 of log.dirs",
    f"[{TS}] WARN to broker zoë-straße.bänk.de:9092 (id: 2 rack: Geheimfach)",
    f"[{TS}] INFO 10.66.77.5:51334 and [::ffff:10.66.77.5]:9092 closed",
)


@pytest.mark.parametrize("line", WORDINGS)
def test_each_wording_by_itself_leaves_no_name(line: str) -> None:
    assert MARK.search(line)
    hide = Redactor()
    hide.learn([line])
    hidden = hide(line)
    assert not MARK.search(hidden)
    assert not line.startswith("[20") or hidden[:25] == line[:25]


def test_of_the_whole_corpus_no_output_names_anybody(tmp_path: Path) -> None:
    path = tmp_path / "markhost9" / "server.log"
    path.parent.mkdir()
    path.write_text("\n".join(WORDINGS) + "\nmarkuser said markrack to markclient on markhost\n")
    write_redacted(tmp_path, path)
    assert texts_below(tmp_path / "open").count("mark") > 100
    assert not MARK.search(texts_below(tmp_path / "out"))


def test_of_a_line_that_was_not_understood_only_its_outline_is_shown() -> None:
    assert outline("Who? Zoë Müller-7 (10.1.2.3)") == "xxx? xxx xxxxxx-9 (99.9.9.9)"


def write_redacted(tmp_path: Path, path: Path) -> None:
    """Both reports about one log."""
    bundle = inputs_of([str(path)], "shop", [], None)
    silver = silver_of(bundle)
    answers = answers_for(silver.ingested.events)
    read = Input(silver.ingested.counts, silver.ingested.quarantine, silver.skew, silver.ingested.files)
    quote = quoting_all(bundle.files, silver.ingested.events, answers)
    write_report(tmp_path / "open", answers, quote, read)
    write_report(tmp_path / "out", answers, quote, read, redact=True)


def texts_below(folder: Path) -> str:
    return "".join(
        str(pq.read_table(one).to_pylist()) if one.suffix == ".parquet" else one.read_text()
        for one in sorted(folder.rglob("*"))
        if one.is_file()
    )


@pytest.mark.parametrize("folder", ["kafka-9.example.com", "broker1"])
@pytest.mark.parametrize("name", ["state-change.log", "server.log.kafka9.acme.corp.gz.log"])
def test_no_host_and_no_address_is_left_in_any_file(tmp_path: Path, folder: str, name: str) -> None:
    path = tmp_path / "logs" / "acme" / folder / name
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(LINES) + "\n")
    bundle = inputs_of([str(path)], "shop", [], None)
    silver = silver_of(bundle)
    answers = answers_for(silver.ingested.events)
    assert len(silver.ingested.quarantine) == 5
    read = Input(silver.ingested.counts, silver.ingested.quarantine, silver.skew)
    quote = quoting_all(bundle.files, silver.ingested.events, answers)
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
def test_a_word_that_is_no_host_is_left_alone(text: str) -> None:
    hide = Redactor()
    hide.learn([text])
    assert hide(text) == text
