"""Every limit and time-out, the unit in the name, and a broker's properties under Kafka's own names.

A value that an operator may want to change is a property of `BrokerConfig`; one that only a developer would change is
a constant of `Limits`. No other number is invented in the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final

import javaproperties
import msgspec


class Limits(msgspec.Struct, frozen=True):
    """Bounds of the shell. Only tests make them smaller."""

    # ZooKeeper
    #: a short session is no reason to give up soon on a ZooKeeper that starts, too
    first_session_min_ms: int = 18_000
    writes_per_transaction: int = 500
    bytes_per_transaction: int = 512 * 1024
    transactions_in_flight: int = 4
    resends_after_conflict: int = 5
    conflicts_per_subject: int = 20
    refusal_retry_min_ms: int = 1_000
    refusal_retry_max_ms: int = 60_000
    # the loop
    requests_queued: int = 1_000
    request_deadline_ms: int = 15_000
    changes_per_slice: int = 5_000
    # telling brokers
    partitions_per_rpc: int = 10_000
    rpc_timeout_ms: int = 30_000
    rpc_retry_min_ms: int = 50
    rpc_retry_max_ms: int = 1_000
    rpc_body_max_bytes: int = 8 * 1024 * 1024
    # real brokers: a connection may be refused for so long after a registration
    kafka_refused_max_ms: int = 2_000
    kafka_connections: int = 1_000
    kafka_connections_per_peer: int = 250
    kafka_relays: int = 50
    #: until the next broker is tried: to connect and log in, and for the versions that it serves
    kafka_connect_ms: int = 2_000
    #: for the answers of brokers before the seat is taken: the first broker (a login may be slow), then the others
    kafka_probe_ms: int = 5_000
    kafka_probe_rest_ms: int = 500
    kafka_answer_max_bytes: int = 64 * 1024 * 1024
    kafka_in_flight_bytes: int = 64 * 1024 * 1024
    kafka_login_max_bytes: int = 64 * 1024
    kafka_login_ms: int = 10_000
    #: between the refused logins of one peer
    kafka_refusal_ms: int = 500
    kafka_idle_ms: int = 600_000
    api_body_max_bytes: int = 1024 * 1024
    #: of a list, or of a map by names or numbers, in a body
    api_list_max_items: int = 10_000
    # connections and callers
    connections: int = 2_000
    connections_per_peer: int = 1_000
    head_timeout_ms: int = 10_000
    head_max_bytes: int = 16 * 1024
    headers: int = 64
    body_timeout_ms: int = 30_000
    stall_ms: int = 30_000
    keep_alive_ms: int = 75_000
    changes_per_s: int = 200
    changes_at_once: int = 2_000
    # readers: each round of the event loop has one turn for them at most, and a turn so much
    partitions_per_turn: int = 500
    bytes_per_turn: int = 64 * 1024
    #: after each turn, while the controller works
    reader_pause_ms: int = 10
    #: costly questions under way, of all callers and of one, until their answers are read; and of one in time
    costly_in_flight: int = 64
    costly_per_caller: int = 16
    costly_per_s: int = 50
    costly_at_once: int = 1_000
    #: callers within this time share one answer while nothing changes; all shared answers take at most so many bytes
    answer_kept_ms: int = 1_000
    answers_kept_bytes: int = 32 * 1024 * 1024
    #: until a large answer has been read
    answer_timeout_ms: int = 60_000
    # the event stream
    event_subscribers: int = 200
    event_subscribers_per_caller: int = 50
    events_per_write: int = 500
    event_gives_way_ms: int = 1_000
    event_heartbeat_ms: int = 2_000
    event_write_timeout_ms: int = 10_000
    # the matrix: a page ends with the topic that brings it over this
    matrix_partitions_per_page: int = 20_000
    # metrics: over this, the families with a series for each partition are left out, whole
    partitions_per_exposition: int = 10_000
    # terms: a belief of so many partitions is left out of the garbage collector's rounds
    frozen_partitions_min: int = 10_000
    claim_backoff_min_ms: int = 1_000
    claim_backoff_max_ms: int = 60_000
    #: a change that no watch reports (an ACL that was mended) is looked for again after so long
    trouble_backoff_min_ms: int = 250
    trouble_backoff_max_ms: int = 5_000
    # logs
    log_rotation_bytes: int = 64 * 1024 * 1024
    log_files_kept: int = 5
    log_lines_queued: int = 1_000_000
    #: so long health is yellow after lines were lost; the counter among the metrics never forgets
    log_loss_shown_ms: int = 600_000


LIMITS: Final = Limits()


class ConfigError(ValueError):
    """A property is unknown, malformed or missing; the message names it and says how to write it."""


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True, rename=lambda name: name.replace("_", ".")):
    """`server.properties` of one broker process, with Kafka's names and defaults."""

    #: -1: the one in `meta.properties`, or else a new one from `/brokers/seqid`
    broker_id: int = -1
    broker_id_generation_enable: bool = True
    reserved_broker_max_id: int = 1_000
    zookeeper_connect: str
    #: separated by commas
    log_dirs: str
    listeners: str = "HTTP://127.0.0.1:8081"
    advertised_listeners: str | None = None
    #: the listener through which brokers and their controller reach each other, the same in the whole cluster
    inter_broker_listener_name: str = "HTTP"
    broker_rack: str | None = None
    zookeeper_session_timeout_ms: int = 18_000
    #: how long a start waits for its first session before the process ends; later ones are waited for without end
    zookeeper_connection_timeout_ms: int | None = None
    #: this process owns the znodes that it creates (by KLAMM_ZOOKEEPER_AUTH), and others may only read them
    zookeeper_set_acl: bool = False
    #: TLS to ZooKeeper. Kafka's brokers need this socket for it, and ours is none of Java's
    zookeeper_ssl_client_enable: bool = False
    zookeeper_clientCnxnSocket: str | None = None  # noqa: N815 - Kafka's name
    zookeeper_ssl_keystore_type: str | None = None
    zookeeper_ssl_keystore_location: str | None = None
    zookeeper_ssl_truststore_type: str | None = None
    zookeeper_ssl_truststore_location: str | None = None
    zookeeper_ssl_endpoint_identification_algorithm: str = "https"
    #: PEM: our key and certificates, and the authorities whose certificates are good
    ssl_keystore_type: str | None = None
    ssl_keystore_location: str | None = None
    ssl_truststore_type: str | None = None
    ssl_truststore_location: str | None = None
    ssl_client_auth: str = "none"
    #: empty: a server's certificate need not be for the name it is asked by
    ssl_endpoint_identification_algorithm: str = "https"
    inter_broker_protocol_version: str = "3.9"
    replica_lag_time_max_ms: int = 30_000
    #: ours: how often a follower asks a leader
    replica_fetch_wait_max_ms: int = 500
    unclean_leader_election_enable: bool = False
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_per_broker_percentage: int = 10
    leader_imbalance_check_interval_seconds: int = 300
    controlled_shutdown_enable: bool = True
    controlled_shutdown_max_retries: int = 3
    controlled_shutdown_retry_backoff_ms: int = 5_000
    controller_socket_timeout_ms: int = 30_000
    delete_topic_enable: bool = True
    #: of a topic that is asked for in Kafka's protocol without them
    num_partitions: Annotated[int, msgspec.Meta(ge=1)] = 1
    default_replication_factor: Annotated[int, msgspec.Meta(ge=1)] = 1
    # of records, where a listener speaks Kafka's protocol; a topic's own configuration goes before
    min_insync_replicas: Annotated[int, msgspec.Meta(ge=1)] = 1
    #: smaller than Kafka's: the last segment is read whole when a log is opened
    log_segment_bytes: Annotated[int, msgspec.Meta(ge=1 << 10, le=(1 << 31) - 1)] = 64 * 1024 * 1024
    log_retention_ms: Annotated[int, msgspec.Meta(ge=-1)] = 7 * 86_400_000
    log_retention_bytes: Annotated[int, msgspec.Meta(ge=-1)] = -1
    #: nothing is synced by itself, as in Kafka: replication keeps acknowledged records when a process dies
    log_flush_interval_messages: Annotated[int, msgspec.Meta(ge=1)] = (1 << 63) - 1
    log_flush_interval_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None
    message_max_bytes: Annotated[int, msgspec.Meta(ge=0, le=4 * 1024 * 1024)] = 1_048_588
    # ours: when a leader below protocol level 2.7 announces the ISRs it wrote (constants in Kafka)
    klamm_isr_notification_interval_ms: int = 2_500
    klamm_isr_notification_quiet_ms: int = 5_000
    klamm_isr_notification_delay_max_ms: int = 60_000
    #: ours: a file that says which faults to suffer (`brokerstub/faults.py`); none, and there are none
    klamm_faults_file: str | None = None
    #: ours: where the supervisor of a lab answers, for the dashboard's buttons; none, and there are none
    klamm_lab_url: str | None = None
    #: ours: `HOST:PORT=HOST:PORT,…`: the proxies of a lab through which to connect to these addresses of other brokers
    klamm_lab_routes: str | None = None
    #: ours: the page that `klamm report` wrote last, for the dashboard to link; none, and there is none
    klamm_report_file: str | None = None
    #: Klamm's own: the sums of a stream of the logs (`klamm logs stream`), served to readers; empty: none are served
    klamm_aggregates_file: str | None = None

    @property
    def log_directories(self) -> tuple[Path, ...]:
        """The first one also has the lock, the session and the logs."""
        return tuple(Path(part.strip()) for part in self.log_dirs.split(",") if part.strip())

    @property
    def first_session_timeout_ms(self) -> int:
        """Unless said otherwise the session's time-out, as in Kafka, but never less than Kafka's default of it."""
        if self.zookeeper_connection_timeout_ms is not None:
            return self.zookeeper_connection_timeout_ms
        return max(self.zookeeper_session_timeout_ms, LIMITS.first_session_min_ms)

    @property
    def routes(self) -> dict[str, str]:
        """By the address asked for, the one to connect to."""
        return dict(part.split("=", 1) for part in (self.klamm_lab_routes or "").split(",") if part)


def parse_properties(text: str) -> dict[str, str]:
    """Returns the properties of a Java properties file: with continued lines, escapes, and `=`, `:` or a space after
    the key. Space around a value is not part of it, as in Kafka."""
    try:
        return {key: value.strip() for key, value in javaproperties.loads(text).items()}
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError(f"this escape is none: {error.escape}") from None


def given_properties(texts: Iterable[str]) -> dict[str, str]:
    """Returns the properties given on a command line as `key=value`: a backslash is a backslash, as in `--override`."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"expected key=value, found {text!r}")
        pairs[key.strip()] = value.strip()
    return pairs


def read_properties(path: Path) -> dict[str, str]:
    """Of a file."""
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no text in UTF-8: {error.reason} at byte {error.start}") from None


def broker_config_for(properties: Mapping[str, str]) -> BrokerConfig:
    """Properties as a checked configuration; unknown names are refused, since a typo must not pass silently."""
    known = {field.encode_name for field in msgspec.structs.fields(BrokerConfig)}
    unknown = sorted(set(properties) - known)
    if unknown:
        raise ConfigError(f"unknown properties: {', '.join(unknown)}; known are: {', '.join(sorted(known))}")
    try:
        config = msgspec.convert(dict(properties), BrokerConfig, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{error}".replace("$.", "property ")) from None
    except UnicodeEncodeError:
        raise ConfigError("a property's value is no text in UTF-8") from None
    advertised = [part.strip() for part in (config.advertised_listeners or config.listeners).split(",")]
    if not any(part.startswith(f"{config.inter_broker_listener_name}://") for part in advertised):
        name = config.inter_broker_listener_name
        raise ConfigError(f"property inter.broker.listener.name: none of the listeners is named {name}: {advertised}")
    if len(set(config.log_directories)) != len(config.log_directories) or not config.log_directories:
        raise ConfigError(f"property log.dirs: name at least one directory, and none twice, not {config.log_dirs!r}")
    if not all("=" in part for part in (config.klamm_lab_routes or "").split(",") if part):
        raise ConfigError(
            f"property klamm.lab.routes: HOST:PORT=HOST:PORT,… is expected, not {config.klamm_lab_routes!r}"
        )
    return config
