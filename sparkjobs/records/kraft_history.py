"""Of the logs of a KRaft cluster's nodes, the one history that survived.

The log with the highest epoch and, in it, the highest offset is the truth; older segments of other nodes stand before
it where they agree. Records of another node's log beyond that were never committed: they are counted, and not told. A
gap is bridged by a snapshot, and said.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from sparkjobs.records import RecordError
from sparkjobs.records.discovery import TROUBLES, Source, name_of_node, properties_beside
from sparkjobs.records.kraft_files import Batch, Frame, batch_of, frames_in

_START: Final = 0
MOST_NODES: Final = 2_000
_TROUBLES_SAID: Final = 3


class Span(msgspec.Struct):
    """Offsets of one epoch that follow each other in one node's log."""

    epoch: int
    first: int
    end: int  # the first that is not in it
    has_data: bool  # records of the controller, not only of the quorum
    has_start: bool  # it begins with its leader's first record


class NodeLog(msgspec.Struct):
    """One folder: its content, from one pass over it."""

    folder: str
    node: str
    segments: list[Source]
    snapshots: list[Source]
    spans: list[Span] = []
    voters: frozenset[int] = frozenset()  # as its last record of them says
    troubles: list[str] = []

    @property
    def rank(self) -> tuple[int, int]:
        """By which the surviving log is chosen."""
        return (self.spans[-1].epoch, self.spans[-1].end) if self.spans else (-1, -1)

    @property
    def first(self) -> int:
        return self.spans[0].first if self.spans else 0

    def epoch_at(self, offset: int) -> int | None:
        """Returns the epoch that wrote the record at an offset."""
        return next((one.epoch for one in self.spans if one.first <= offset < one.end), None)


class Piece(msgspec.Struct, frozen=True):
    """The next part to read: a snapshot, or records of a segment from `first` to before `end`."""

    source: Source
    first: int
    end: int


class KraftHistory(msgspec.Struct):
    """Pieces in order; `committed` is the first offset of which nothing proves that it was committed."""

    cluster_id: str | None
    pieces: list[Piece]
    nodes: list[NodeLog]
    base: NodeLog
    committed: int
    #: records that other nodes have and that never were, by folder
    void: dict[str, int]
    gaps: list[str]
    troubles: list[str]

    def batches(self) -> Iterator[tuple[Source, Batch]]:
        """The batches of all pieces; those of a snapshot with the offsets that they have inside it. A batch that is
        whole and cannot be decoded ends them, and is said."""
        for piece in self.pieces:
            try:
                yield from _batches_of(piece)
            except TROUBLES as error:
                if piece.source.kind == "kraft snapshot":
                    raise RecordError(f"{piece.source.path}: {error}") from None
                trouble = f"{piece.source.path}: {error}; it is read up to there"
                self.troubles += [] if trouble in self.troubles else [trouble]
                return


def _batches_of(piece: Piece) -> Iterator[tuple[Source, Batch]]:
    source, first, end = piece.source, piece.first, piece.end
    with source.open() as content:
        is_snapshot = source.kind == "kraft snapshot"
        for frame in frames_in(content, is_known=not is_snapshot):
            if is_snapshot or (first <= frame.base_offset and frame.last_offset < end):
                yield source, batch_of(frame)
            elif frame.base_offset >= end:
                return
            elif frame.last_offset >= first:
                batch = batch_of(frame)
                kept = [one for one in batch.records if first <= one.offset < end]
                yield source, msgspec.structs.replace(batch, records=kept)


def kraft_history(sources: Sequence[Source]) -> KraftHistory | None:
    """None if there is nothing of KRaft. Raises RecordError where no history can be told."""
    folders: defaultdict[str, list[Source]] = defaultdict(list)
    for one in sources:
        if one.kind.startswith("kraft"):
            folders[one.folder].append(one)
    if not folders:
        return None
    ids = {found for folder in folders if (found := properties_beside(folder).get("cluster.id"))}
    if len(ids) > 1:
        raise RecordError(
            f"metadata logs of {len(ids)} clusters ({', '.join(sorted(ids))}): name one cluster's folders"
        )
    if len(folders) > MOST_NODES:
        raise RecordError(f"metadata logs in {len(folders)} folders: name those of one cluster, {MOST_NODES} at most")
    nodes = [_node_of(folder, found) for folder, found in sorted(folders.items())]
    base = max(nodes, key=lambda node: (node.rank, max((one.first for one in node.snapshots), default=-1)))
    pieces, gaps = _pieces_of(base, nodes)
    void = {node.folder: lost for node in nodes if (lost := _void_in(node, base))}
    troubles = [words for node in nodes for words in node.troubles]
    return KraftHistory(next(iter(ids), None), pieces, nodes, base, _committed(base, nodes), void, gaps, troubles)


def _node_of(folder: str, sources: Sequence[Source]) -> NodeLog:
    whole = [one for one in sources if one.trouble is None]
    segments = sorted((one for one in whole if one.kind == "kraft log"), key=lambda one: one.first)
    snapshots = sorted((one for one in whole if one.kind == "kraft snapshot"), key=lambda one: one.first)
    troubles = [f"{one.path}: {one.trouble}" for one in sources if one.trouble is not None]
    node = NodeLog(folder, name_of_node(folder), segments, snapshots, troubles=troubles)
    for one in segments:
        try:
            with one.open() as content:
                for frame in frames_in(content):
                    _note(node, frame)
        except TROUBLES as error:
            node.troubles.append(f"{one.path}: {error}; it is read up to there")
    return node


def _note(node: NodeLog, batch: Frame) -> None:
    last, end = (node.spans[-1] if node.spans else None), batch.last_offset + 1
    if last is None or batch.base_offset != last.end or batch.epoch != last.epoch:
        if last is not None and batch.base_offset < last.end:
            return  # a segment that was copied twice
        last = Span(batch.epoch, batch.base_offset, end, False, batch.is_control)
        node.spans.append(last)
    last.end = end
    last.has_data |= not batch.is_control
    for record in batch_of(batch).records if batch.is_control else ():
        if record.message is not None and "voters" in record.message.fields:
            node.voters = frozenset(one["voterId"] for one in record.message.fields["voters"])


def _agree(node: NodeLog, base: NodeLog, offset: int) -> bool:
    """Two logs that have the same epoch at an offset are the same up to there: Raft's log matching."""
    epoch = node.epoch_at(offset)
    return epoch is not None and epoch == base.epoch_at(offset)


def _pieces_of(base: NodeLog, nodes: Sequence[NodeLog]) -> tuple[list[Piece], list[str]]:
    """Backwards from the surviving log's end, as far as there is something to read."""
    pieces: list[Piece] = []
    snapshots = [one for node in nodes for one in node.snapshots]
    end = base.rank[1]
    if end <= 0:
        if not snapshots:
            said = [words for node in nodes for words in node.troubles][:_TROUBLES_SAID]
            raise RecordError("; ".join(["the metadata logs hold nothing that can be read", *said]))
        newest = max(snapshots, key=lambda one: (one.first, one.epoch or 0))
        return [Piece(newest, newest.first, newest.first)], []
    gaps: list[str] = []
    needed, top = end, base
    while needed > _START:
        holder = _holder_of(needed - 1, base, nodes)
        if holder is None:
            break
        node, first = holder
        pieces += _segments_of(node, first, needed)
        needed, top = first, node
    pieces.reverse()
    if needed == _START:
        return pieces, gaps
    bridging = [one for one in snapshots if needed <= one.first <= end]
    if not bridging:
        raise RecordError(
            f"the metadata log of {top.folder} begins at offset {needed} and no snapshot leads there: bring the "
            "*.checkpoint files of any node"
        )
    bridge = min(bridging, key=lambda one: one.first)
    gaps.append(
        f"offsets below {bridge.first} are no longer in any log: {bridge.path} says how things stood there, not how "
        "they came to be so"
    )
    kept = [
        msgspec.structs.replace(one, first=max(one.first, bridge.first)) for one in pieces if one.end > bridge.first
    ]
    return [Piece(bridge, bridge.first, bridge.first), *kept], gaps


def _holder_of(offset: int, base: NodeLog, nodes: Sequence[NodeLog]) -> tuple[NodeLog, int] | None:
    """Returns the node whose log reaches back furthest from there without a hole, and is the surviving one there."""
    found: tuple[NodeLog, int] | None = None
    for node in (base, *nodes):
        # beyond the base's own log: a node that agrees with it at its first record has the records before it
        if node is not base and not (_agree(node, base, offset) or _agree(node, base, base.first)):
            continue
        first = _reach(node, offset)
        if first is not None and (found is None or first < found[1]):
            found = node, first
    return found


def _reach(node: NodeLog, offset: int) -> int | None:
    """Returns how far back the spans follow each other from there."""
    reached: int | None = None
    for one in reversed(node.spans):
        if reached is None:
            if one.first <= offset < one.end:
                reached = one.first
        elif one.end == reached:
            reached = one.first
        else:
            break
    return reached


def _segments_of(node: NodeLog, first: int, end: int) -> Iterator[Piece]:
    """From the last to the first, each up to where the next begins."""
    until = end
    for one in reversed(node.segments):
        if one.first < until:
            yield Piece(one, max(first, one.first), until)
            until = one.first
        if until <= first:
            break


def _void_in(node: NodeLog, base: NodeLog) -> int:
    """Returns how many records a node has that the surviving log has not, or of another epoch."""
    count, at = 0, 0
    for one in node.spans:
        while at < len(base.spans) and base.spans[at].end <= one.first:
            at += 1
        there = at
        while there < len(base.spans) and (other := base.spans[there]).first < one.end:
            if one.epoch != other.epoch:
                count += min(one.end, other.end) - max(one.first, other.first)
            there += 1
        count += max(0, one.end - max(one.first, base.rank[1]))
    return count


def _committed(base: NodeLog, nodes: Sequence[NodeLog]) -> int:
    """A leader hands over to the controller when all before its own first record is committed. A snapshot holds only
    committed records, and records that most voters have are committed, too."""
    proofs = [one.first for node in nodes for one in node.snapshots]
    proofs += [one.first + 1 for one in base.spans if one.has_data and one.has_start]
    ends: dict[str, int] = {}
    for node in nodes:
        if _agree_at_end(node, base):
            ends[node.node] = max(node.rank[1], ends.get(node.node, 0))
    reached = sorted((ends.get(str(voter), 0) for voter in base.voters), reverse=True)
    proofs += reached[len(reached) // 2 : len(reached) // 2 + 1]
    return min(max(proofs, default=0), max(base.rank[1], max((one.first for one in base.snapshots), default=0)))


def _agree_at_end(node: NodeLog, base: NodeLog) -> bool:
    return bool(node.spans) and _agree(node, base, node.rank[1] - 1)
