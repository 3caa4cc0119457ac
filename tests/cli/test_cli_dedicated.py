"""`klamm controller`: the addresses where it may listen, and the settings that it needs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from brokerstub.lab.settings import LabError, read_lab_file
from controller.base.config import ConfigError
from controller.kafka.cluster.settings import broker_settings, sasl_for
from controller.kafka.protocol.access import Admission, Sasl
from tests.support.deciding_support import run

TO = ("controller", "--zookeeper", "127.0.0.1:1")


@pytest.mark.parametrize("command", ["takeover", "handback"])
def test_the_controller_of_the_local_cluster_is_asked_where_there_is_one(command: str, tmp_path: Path) -> None:
    (tmp_path / "lab.json").write_text('{"brokers": {"controller": "http://127.0.0.1:1"}}')
    result = run(command, "--timeout", "100ms", KLAMM_VAR=str(tmp_path))
    assert (result.exit_code, "at http://127.0.0.1:1;" in result.stderr) == (3, True), result.stderr


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://192.0.2.1:8081", "not on this machine"),
        ("http://evil.example:8081", "not on this machine"),
        ("http://127.0.0.1.evil.example:8081", "not on this machine"),
        ("http://127.0.0.1:80@evil.example:8081", "not on this machine"),
        ("ftp://127.0.0.1:8081", "not on this machine"),
        ("http://[::1:80", "not on this machine"),
    ],
)
def test_a_file_of_a_lab_leads_nowhere_but_here(address: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "lab.json").write_text(json.dumps({"brokers": {"1": address}}))
    result = run("status", KLAMM_VAR=str(tmp_path), KLAMM_API_TOKEN="t" * 32)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


@pytest.mark.parametrize("change", ["mode", "owner"])
def test_a_file_of_a_lab_that_others_may_have_written_is_not_believed(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = tmp_path / "lab.json"
    lab.write_text('{"brokers": {"1": "http://127.0.0.1:1"}}')
    if change == "mode":
        lab.chmod(0o666)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: lab.stat().st_uid + 1)
        if lab.stat().st_uid == 0:
            os.chown(lab, 4_711, -1)
    result = run("status", KLAMM_VAR=str(tmp_path), KLAMM_API_TOKEN="t" * 32)
    assert (result.exit_code, "says where secrets are sent" in result.stderr) == (2, True), result.stderr
    with pytest.raises(LabError, match="says where secrets are sent"):
        read_lab_file(tmp_path)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--listen", "kafka://10.0.0.1:9100,http://127.0.0.1:9101"), "or --insecure"),
        (("--listen", "kafka://127.0.0.1:9100,http://db.example:9101"), "say --insecure"),
        (("--listen", "kafka://0.0.0.0:9100,http://127.0.0.1:9101", "--insecure"), "name the one address"),
        (("--listen", "kafka://127.0.0.1:9100"), "name a kafka:// address (or ssl://, …) and one of http"),
        (("--listen", "kafka://127.0.0.1,http://127.0.0.1:1"), "write it like kafka://127.0.0.1:9100"),
        (("--protocol", "2.3"), "no protocol level from 2.4 to 3.9"),
        (("--protocol", "4.0"), "no protocol level from 2.4 to 3.9"),
        (("--listen", "sasl_ssl://127.0.0.1:1,http://127.0.0.1:2"), "a SASL listener takes sasl.jaas.config"),
        (("--listen", "tls://127.0.0.1:1,http://127.0.0.1:2"), "ssl://…, sasl_plaintext://"),
        (("--listen", "kafka://127.0.0.1:1,plaintext://127.0.0.1:2,http://127.0.0.1:3"), "is named twice"),
        (("--listen", "ssl://10.0.0.1:1,http://127.0.0.1:2"), "or ssl with ssl.client.auth=required"),
        (("--set", "ssl.keystore.type=JKS"), "only PEM is read here, not JKS; keytool -importkeystore"),
        (("--set", "ssl.truststore.type=PKCS12"), "only PEM is read here, not PKCS12; keytool -list -rfc"),
        (("--set", "ssl.key.password=x"), "keys are read without one"),
        (("--set", "sasl.jaas.config=x"), "seen by everybody here: put it into the file of --config"),
        (("--set", "sasl.enabled.mechanisms=GSSAPI"), "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 are spoken, not GSSAPI"),
        (("--set", "broker.rank=1"), "unknown properties: broker.rank"),
    ],
)
def test_an_impossible_setting_is_wrong_usage_and_says_so(given: tuple[str, ...], said: str) -> None:
    result = run(*TO, *given)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


JAAS = "org.apache.kafka.common.security"
PLAIN = f'{JAAS}.plain.PlainLoginModule required username="a" password="b"'
MECHANISM = "sasl.mechanism.inter.broker.protocol=PLAIN"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["sasl.jaas.config=x"], "not GSSAPI"),
        (
            [MECHANISM, f"sasl.jaas.config={JAAS}.scram.ScramLoginModule required username=a password=b;"],
            "the login mod",
        ),
        ([MECHANISM, f"sasl.jaas.config={JAAS}.plain.PlainLoginModule required;"], "username and password say who"),
        ([MECHANISM, f"sasl.jaas.config={PLAIN};"], 'user_NAME="password" for each that may'),
        ([MECHANISM, f"sasl.jaas.config={PLAIN} nonsense;"], "write it like MODULE required"),
        ([MECHANISM], "the login module of PLAIN is expected"),
        (["no property"], "unknown properties: no;"),
    ],
)
def test_a_malformed_file_is_wrong_usage_and_no_password_is_repeated(
    lines: list[str], said: str, tmp_path: Path
) -> None:
    file = tmp_path / "controller.properties"
    file.write_text("\n".join(lines).replace('"b"', '"a-secret"'))
    file.chmod(0o600)
    result = run(*TO, "--config", str(file))
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
    assert "a-secret" not in result.stderr


def test_a_file_with_a_password_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "controller.properties"
    file.write_text(f"{MECHANISM}\nsasl.jaas.config={PLAIN} user_a=b;")
    file.chmod(0o644)
    assert "chmod 600" in run(*TO, "--config", str(file)).stderr


def test_a_line_of_jaas_is_read_as_kafka_reads_it() -> None:
    line = f'{JAAS}.plain.PlainLoginModule required username="a b" password="q\\"\\\\;" user_x=y user_z = "1";'
    sasl = sasl_for({"sasl.mechanism.inter.broker.protocol": "PLAIN", "sasl.jaas.config": line})
    assert sasl == Sasl("PLAIN", "a b", 'q"\\;', Admission(("PLAIN",), {"x": "y", "z": "1"}))


def test_a_stub_broker_is_given_users_and_no_identity(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    base = "zookeeper.connect=h:1\nlog.dirs=d\n"

    def told(text: str) -> Admission | None:
        file.write_text(base + text)
        file.chmod(0o600)
        return broker_settings(file)[1]

    assert told("") is None
    assert told("sasl.enabled.mechanisms=SCRAM-SHA-512") == Admission(("SCRAM-SHA-512",))
    users = f"sasl.jaas.config={JAAS}.plain.PlainLoginModule required user_ann=s;"
    assert told(f"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256\n{users}") == Admission(
        ("PLAIN", "SCRAM-SHA-256"), {"ann": "s"}
    )
    for wrong, said in (
        (users, "not GSSAPI"),
        ("sasl.enabled.mechanisms=PLAIN", 'user_NAME="password"'),
        ("sasl.enabled.mechanisms=PLAIN\nsasl.jaas.config=x.y required;", "PLAIN is expected"),
    ):
        with pytest.raises(ConfigError, match=said):
            told(wrong)
    told(f"sasl.enabled.mechanisms=PLAIN\n{users}")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        broker_settings(file)
    with pytest.raises(ConfigError, match="seen by everybody"):
        broker_settings(file, [users])
