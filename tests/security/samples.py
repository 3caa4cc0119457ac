"""Good input of every kind, for parsers to understand and for others to spoil. Bytes only."""

from __future__ import annotations

import struct
import zlib
from typing import Final

from tests.known.kraft_samples import batch

ZNODES: Final = (
    b'{"version":2,"brokerid":1,"timestamp":"1","kraftControllerEpoch":-1}',
    b'{"version":5,"host":"h","port":1,"endpoints":["HTTP://h:1"],"listener_security_protocol_map":{"HTTP":"PLAINTEXT"},'
    b'"features":{},"timestamp":"1","jmx_port":-1}',
    b'{"version":3,"topic_id":"aaaaaaaaaaaaaaaaaaaaaa","partitions":{"0":[1,2],"1":[2,1]},"adding_replicas":{"0":[3]},'
    b'"removing_replicas":{}}',
    b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}',
    b'{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2]}]}',
    b'{"version":1,"partitions":[{"topic":"orders","partition":0}]}',
    b'{"version":1,"config":{"retention.ms":"1"}}',
    b'{"version":2,"entity_path":"topics/orders"}',
    b'{"version":"1","id":"aaaaaaaaaaaaaaaaaaaaaa"}',
    b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
    b'{"abandon_offline":true}',
    b"17",
)
BODIES: Final = (
    b'{"full":true,"part":1,"parts":1,"brokers":[{"id":1,"epoch":1,"state":"live","rack":null,"endpoints":["HTTP://h:1"]}],'
    b'"topics":[{"topic":"orders","topic_id":"id","partitions":[[0,1,1,0,[1,2],0,[1,2],[],[],[],true,0]]}]}',
    b'{"topics":[{"topic_id":"id","partitions":[[0,1,0,0,[[1,100],[2,200]]]]}]}',
    b'{"topics":[{"topic":"orders","topic_id":"id","partitions":[[0,1,true]]}]}',
    b'{"session":0,"sequence":0,"topics":[{"topic_id":"id","partitions":[[0,1,"log"]]}],"forgotten":[]}',
    b'{"error_code":0,"partitions":[{"topic_id":"id","partition":0,"error_code":6}]}',
    b'{"name":"orders","partitions":1,"replication_factor":1,"configs":{"a":"b"}}',
    b'{"kill":[1,2]}',
    b'{"type":"preferred","partitions":null}',
    b'{"count":3}',
    b'{"values":{"unclean.leader.election.enable":"true"}}',
    b'{"broken_dirs":[0],"held":[["orders",0]]}',
)
PLANS: Final = (*ZNODES[4:6], b'{"version":1,"topics":[{"topic":"orders"}]}')
PROPERTIES: Final = b"broker.id=1\nzookeeper.connect=h:1/c\nlog.dirs=a,b\nlisteners=HTTP://127.0.0.1:1\n# x\n"
META: Final = b"# which\nversion=0\nbroker.id=1\ncluster.id=abc\n"
AGGREGATES: Final = (
    b'{"kept_by":"s","looked_ms":9,"from_ms":1,"to_ms":8,"events":2,"controllers":1,"outages":1,"partitions":1,'
    b'"leaderless_now":0,"leaderless_unknown":0,"leaderless_ms":2,"longest_felt_ms":3,"latest":[{"topic":"orders",'
    b'"partition":0,"start_ms":2,"felt_from_ms":1,"end_ms":4}],"moves":[{"machine":"partition","target":'
    b'"OnlinePartition","times":1,"last_ms":4}]}',
)
REPLICA: Final = b'{"topic_id":"id","partition":0,"topic":"orders","log_id":"l","leader_epochs":[1]}\n'
JAAS: Final = b'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b" user_c="d";'
RECORD: Final = b"salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=4096"
LINES: Final = (
    b"[2024-01-01 10:00:00,123] INFO [Controller id=1] New leader and ISR for partition orders-0 is Leader(1)",
    b'{"at_ms":1,"cluster_id":"c","controller_id":1,"controller_epoch":5,"kind":"partition","isr":[1,2]}',
    b"[2024-01-01 10:00:00,123] TRACE [Controller id=1 epoch=5] Changed partition orders-0 state from New to Online "
    b"with state LeaderAndIsr(leader=1, leaderEpoch=0, isr=List(1, 2), zkVersion=0) (state.change.logger)",
)
REPLIES: Final = (
    struct.pack(">ii", 2, 3) + b"a\0\0\0\x01b" + bytes(68),
    struct.pack(">i?i", 4, False, -1) + struct.pack(">i", 2) + b"{}" + bytes(68),
    struct.pack(">i?i", -1, False, -101) + struct.pack(">i", -101) + struct.pack(">i?i", -1, True, -1),
    struct.pack(">i?i", 5, False, -1) + bytes(68) + struct.pack(">i?i", -1, True, -1),
    struct.pack(">iii", 1, 3, 4) + b"/a/b",
)
#: a session begins
_RECORD = struct.pack(">qiqqi", 7, 1, 1, 1_000, -10) + struct.pack(">i", 4_000)
TRANSACTION_LOGS: Final = (
    b"ZKLG\0\0\0\x02" + bytes(8),
    b"ZKLG\0\0\0\x02" + bytes(8) + struct.pack(">qi", zlib.adler32(_RECORD), len(_RECORD)) + _RECORD + b"B",
)
#: nothing but the root; the checksum that ends it
_TREE: Final = b"ZKSN\0\0\0\x02" + bytes(8 + 8) + bytes(4) + b"\xff\xff\xff\xff" + bytes(8 + 60) + b"\0\0\0\x01/"
ZOOKEEPER_SNAPSHOTS: Final = (_TREE + struct.pack(">q", zlib.adler32(_TREE)) + b"\0\0\0\x01/",)
#: a topic and a partition, and the leader of the quorum
METADATA_RECORDS: Final = (
    b"\x01\x02\x00\x02a" + bytes(16) + b"\x00",
    b"\x01\x05\x00" + bytes(4 + 16) + b"\x02\x00\x05\x02" + b"\0\0\0\x01" + b"\x01\x04" + b"\0\0\0\x01",
)
CONTROL_RECORDS: Final = (b"\0\0\0\x02" + b"\0\0" + b"\0\0\0\x01" + b"\x02\0\0\0\x01\0" + b"\x01\0",)
DESCRIBED: Final = (b"Topic: a\tPartition: 0\tLeader: none\tReplicas: 1,2\tIsr: 1\tElr: 2\tLastKnownElr: ",)
METADATA_LOGS: Final = (
    batch(0, 1, 5, [one[4:] for one in CONTROL_RECORDS], keys=[one[:4] for one in CONTROL_RECORDS])
    + batch(1, 1, 6, METADATA_RECORDS),
)
EVENT: Final = b'id: 1-2\nevent: line\ndata: {"a":1}'
TOKENS: Final = (b"\0ann\0other", b"n,,n=ann,r=abc", RECORD, b"c=biws,r=abcdef,p=YQ==")
KAFKA_FRAMES: Final = (
    struct.pack(">hhih", 44, 1, 7, 1) + b"k\0\x02\x04\x021\x02\x02a\x01\0\0\0\0\0",
    struct.pack(">hhih", 19, 5, 7, -1) + b"\x02\x02a\0\0\0\x01\0\x01\x01\x01\0\0\0\0\0\0",
    struct.pack(">i", 7) + b"\0\0\0\x02" + bytes(16) + b"\x02\0\0\0\x01\0\x06\0\0\0",
    struct.pack(">hhi", 0, 9, 7) + b"\x02a\x02\0\0\0\0\x02x\0\0",
)

#: a follower's answer with a batch of four bytes
FED: Final = (b'{"session":1,"is_fed":true,"records":[["id",0,1,0,0,1,4]]}\nabcd', b'{"error_code":70}')
#: as kio writes it: one record, and two of an idempotent producer
BATCHES: Final = (
    bytes.fromhex(
        "000000000000000000000039ffffffff02d3f2ac750000000000000000018bcfe568000000018bcf"
        "e56800ffffffffffffffffffffffffffff000000010e00000001027600"
    ),
    bytes.fromhex(
        "000000000000000000000041ffffffff02eebd1c880000000000010000018bcfe568000000018bcf"
        "e568000000000000000007000000000000000000020e000000010276000e00000201027700"
    ),
)
#: marks of a settled segment, and a state at offset 2
LOG_FILES: Final = (
    b'{"next_offset":1,"size":69,"checksum":0}',
    b'{"offset":2,"epochs":[[0,0],[3,1]],"producers":[[7,0,[[0,1,0,1,1700000000000]]]]}',
)
