"""Kafka's log of one partition: the producers' batches in order, and its recovery, truncation and retention.

A stub broker's replicas are opened and used by `logs.py` of the package above.

| Module | Owns |
|---|---|
| `errors` | why something is refused, each with Kafka's error code |
| `batches` | record batches of format 2: the header and its checksum. Records stay opaque bytes |
| `disks` | the port of a disk that a log needs, and a real folder as one |
| `state` | the state of a log beside its batches: leader epochs and idempotent producers |
| `segment` | one file of batches with its index: where an offset or a time is |
| `log` | the log: append, read, truncate, recover, retain |
| `replication` | a leader's knowledge of followers (high watermark, in-sync replicas, `acks`), and a follower's steps |

**Files** are Kafka's: `BASE.log`, `BASE.index`, `BASE.timeindex`, so that Kafka's `DumpLogSegments` reads them. Two are
ours: `BASE.snapshot`, the state at that offset, and `BASE.settled`. Only `.log` files are the log; all others are made
anew from them.

**Settled.** A segment behind which there is another is settled once it was synced, its index files were written, and
after them the mark `.settled`, with their checksum; recovery does not read it again. `settle` does that, whenever its
caller likes. The last segment and those that are not settled are read whole on open, each batch with its checksum. At
the first batch that is torn, damaged or out of order the log is cut; the batches behind it are counted in
`Log.recovered`.

**Losses in a crash.** Written bytes survive the death of the process. The death of the machine may take all bytes that
were not synced. Without `flush.messages` and `flush.ms` (as in Kafka's defaults) nothing is synced before its segment
is settled: replication keeps acknowledged records. A truncation is synced before anything is appended after it, so that
truncated records never come back.

**Replication.** A follower's question names its records: all before the offset that it asks for, the last of them of a
leader epoch that it names. From questions alone the leader knows where logs end; the high watermark is the least end of
all replicas that are in the ISR or were asked to be. A follower joins with all records below the high watermark, and
all that the leader had when its leader epoch began, since the leader does not know which of these were acknowledged.
Where logs part, the answer says so, and the follower truncates; the removed records are returned, to be counted and
named.

**Time and disk are given.** Time is an argument (milliseconds since 1970, the caller's clock). The disk is a `Disk`;
the simulator brings its own. Nothing here awaits, and nothing is safe for two threads.

**An error of the disk** is passed on as it is. The log then refuses everything until it is opened again: only the disk
knows which bytes were written.

Left out: compaction, transactions, formats 0 and 1, looking into compressed batches.
"""
