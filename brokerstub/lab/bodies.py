"""The bodies of the lab's HTTP side: orders in, the lab's processes out.

Owns the shapes. Fields may be added, never renamed: `klamm`, the dashboard and scripts read them.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

#: the name of the job that keeps aggregates
AGGREGATES: Final = "aggregates"
State = Literal["running", "frozen", "stopping", "stopped", "killed", "exited"]


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of every verb."""

    broker: int
    #: of `freeze` alone: thaw by itself afterwards
    for_ms: int | None = None
    #: of `break-disk` and `mend-disk` alone: which log directory, from 0; by default the first good one, all bad ones
    dir: int | None = None
    #: of `hold` and `release` alone: the topic or partition that the broker does not fetch
    topic: str | None = None
    partition: int | None = None
    #: of `cut` and `heal` alone: the other broker; by default ZooKeeper is cut off, and everything healed
    peer: int | None = None
    #: of `cut` with a peer alone: only the broker's own messages are lost, in silence
    one_way: bool = False


TroubleKind = Literal["lost-answers", "move-leader", "silent-broker", "slow-broker", "stale-leader", "unclean-election"]


class TroubleOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `trouble`. What is not said is drawn from the seed, and that one by chance."""

    kind: TroubleKind | None = None
    topic: str | None = None
    partition: int | None = None
    #: how long it lasts; of an unclean election, how long the leader goes on alone
    for_ms: int | None = None
    seed: str | None = None


class Trouble(msgspec.Struct, frozen=True):
    """What happened, and what was drawn for it; `broker` led the partition as it began."""

    kind: str
    topic: str
    partition: int
    broker: int
    for_ms: int
    seed: str
    told: str


class ProcessRow(msgspec.Struct, frozen=True):
    """A process of the lab as `klamm ps` shows it."""

    name: str
    #: None when it does not run, or is not ours
    pid: int | None
    state: State
    address: str
    #: of one that has ended
    exit_code: int | None = None
    #: from ZooKeeper
    is_cut: bool = msgspec.field(default=False, name="cut")
    log: str | None = None
    #: of the log, when it ended by itself
    last_lines: list[str] = []
    #: log directories that were made to fail
    broken_dirs: list[int] = []
    #: brokers that it cannot talk to
    cut_peers: list[int] = []
    #: brokers that do not get its messages
    mute_peers: list[int] = []


class Done(msgspec.Struct, frozen=True):
    """What became of an order; `changed` is false when it was so already."""

    changed: bool
    process: ProcessRow


class Processes(msgspec.Struct, frozen=True):
    """What runs where: the supervisor, ZooKeeper, the brokers in order."""

    processes: list[ProcessRow]

    @property
    def brokers(self) -> list[ProcessRow]:
        return self.processes[2:]
