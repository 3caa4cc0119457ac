"""True on every part of the input: recorded clusters with some of their logs taken away, question by question, against
ZooKeeper's record and the faults of the timeline. A cell is right, bounded (the truth lies within the answer), unknown
(and marked so) or wrong; none may be wrong.
"""

from __future__ import annotations

import gzip
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from sparkjobs.engine.local.conclude import conclude
from sparkjobs.input.files import Zones, find_logs, survey
from sparkjobs.report.verdict import summary_for, verdict_for
from sparkjobs.rules.rules import Answers
from tests.recordings import Recording
from tests.spark.truth import Seat, Stood, leaderless, seats_of, states_of

DATA: Final = Path(__file__).parents[1] / "data"
KINDS: Final = ("state-change", "controller", "server")
OLDER: Final = sorted(path.name for path in (DATA / "kafka-older").iterdir() if path.is_dir())
#: a line follows the write by no more than this
LAG_MS: Final = 1_500
_MOMENT: Final = re.compile(rb"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d,\d{3}")


class Truth(NamedTuple):
    """The events."""

    states: list[Stood]
    seats: list[Seat]
    timeline: list[dict[str, Any]]

    def fault_before(self, broker: int, at_ms: int) -> dict[str, Any] | None:
        """Returns the last fault up to then that could take it away."""
        done = [one for one in self.timeline if one.get("broker") == broker and one["what"] in _FAULTS]
        return next((one for one in reversed(done) if one["at_ms"] <= at_ms + LAG_MS), None)


#: the fault of a broker, and how it then went
_FAULTS: Final = {
    "kill": {"crashed"},
    "sigterm": {"stopped"},
    "stop": {"stopped"},
    "freeze": {"expired"},
    "cut": {"expired"},
}


@cache
def truth_of(name: str) -> Truth:
    folder = DATA / name
    lines = (folder / "timeline.jsonl").read_bytes().splitlines()
    recording = Recording(folder)
    seats = seats_of(recording)
    if name.startswith("kafka-older"):  # before 2.1 the epoch is written after the znode
        seats = [seat._replace(controller_epoch=number) for number, seat in enumerate(seats, start=1)]
    return Truth(states_of(recording), seats, [msgspec.json.decode(line) for line in lines])


class Subset(NamedTuple):
    """Which lines are there."""

    name: str
    has_file: Callable[[str, str], bool]  # broker's folder, file's name
    has_line: Callable[[bytes, int, int], bool] = lambda line, part, parts: True


def subsets(brokers: list[str]) -> Iterator[Subset]:
    yield Subset("all", lambda broker, name: True)
    for kind in KINDS:
        yield Subset(f"without {kind}", lambda broker, name, kind=kind: not name.startswith(kind))  # type: ignore[misc]
        yield Subset(f"only {kind}", lambda broker, name, kind=kind: name.startswith(kind))  # type: ignore[misc]
    for gone in brokers:
        yield Subset(f"without {gone}", lambda broker, name, gone=gone: broker != gone)  # type: ignore[misc]
    yield Subset("INFO", lambda broker, name: True, lambda line, part, parts: not _is_below_info(line))
    yield Subset("INFO, only state-change", _is_state_change, lambda line, part, parts: not _is_below_info(line))
    yield Subset("without the first third", lambda broker, name: True, lambda line, part, parts: part * 3 >= parts)
    yield Subset("without the last third", lambda broker, name: True, lambda line, part, parts: part * 3 < parts * 2)


def _is_state_change(broker: str, name: str) -> bool:
    return name.startswith("state-change")


def _is_below_info(line: bytes) -> bool:
    return b" TRACE " in line[:40] or b" DEBUG " in line[:40]


def written(subset: Subset, recording: Path, out: Path) -> Path:
    """Its logs below `out`."""
    contents = {
        (folder.name, path.name): gzip.decompress(path.read_bytes())
        for folder in sorted(recording.glob("broker*"))
        for path in sorted(folder.glob("*.gz"))
    }
    moments = [_at(found) for content in contents.values() for found in _edges(content)]
    first, last = min(moments), max(moments)
    for (folder, name), content in contents.items():
        if not subset.has_file(folder, name):
            continue
        (out / folder).mkdir(parents=True, exist_ok=True)
        with (out / folder / name.removesuffix(".gz")).open("wb") as file:
            part = 0
            for line in content.splitlines(keepends=True):
                found = _MOMENT.search(line[:40])
                part = part if found is None else _at(found[0]) - first
                if subset.has_line(line, part, last - first):
                    file.write(line)
    return out


def _edges(content: bytes) -> Iterator[bytes]:
    found = _MOMENT.findall(content)
    yield from (found[0], found[-1]) if found else ()


def _at(text: bytes) -> int:
    moment = datetime.strptime(text.decode().replace("T", " "), "%Y-%m-%d %H:%M:%S,%f")
    return round(moment.replace(tzinfo=UTC).timestamp() * 1_000)


RIGHT, BOUNDED, UNKNOWN, WRONG = "right", "bounded", "unknown", "wrong"


def is_over(answers: Answers, truth: Truth, end_ms: int) -> str:
    """A partition named as without a leader at the end is; and if all outages are named as over, they are."""
    deleted = {one.get("topic") or one.get("name") for one in truth.timeline if one["what"] == "delete"}
    stood = [state for state in truth.states if state.at_ms <= end_ms]
    open_then = {(topic, number) for topic, number, _, to_ms in leaderless(stood) if to_ms is None}
    open_then = {key for key in open_then if key[0] not in deleted}
    rows: list[Any] = list(answers["partition_outages"])
    said = {(row.topic, row.partition) for row in rows if row.open and row.unseen is None}
    # the leader of a partition without one may have gone without a line of ZooKeeper's
    dead = {(s.topic, s.partition) for s in stood if s.leader >= 0 and truth.fault_before(s.leader, end_ms) is not None}
    if said - open_then - dead:
        return WRONG
    sentence = verdict_for(answers).sentence
    if "Not known" in sentence or "Nothing is known" in sentence:
        return UNKNOWN
    return RIGHT if said or not sentence.startswith("Not over") else WRONG


def elections_that_ended_outages(answers: Answers, truth: Truth, end_ms: int) -> str:
    """The state that ended an outage was written."""
    held = {(s.topic, s.partition, s.leader) for s in truth.states}
    rows: list[Any] = [row for row in answers["partition_outages"] if row.ended_by == "elected"]  # type: ignore[attr-defined]
    if any((row.topic, row.partition, row.leader) not in held for row in rows):
        return WRONG
    return RIGHT if rows else UNKNOWN


def outages_lie_in_bounds(answers: Answers, truth: Truth, end_ms: int) -> str:
    """When ZooKeeper has no leader, and a row covers its end, it began before that."""
    rows: list[Any] = list(answers["partition_outages"])
    if any(not row.start_lo_ms <= row.start_ms <= row.start_hi_ms for row in rows):
        return WRONG
    if any(row.end_ms is not None and row.end_ms < row.start_ms for row in rows):
        return WRONG
    if not rows:
        return UNKNOWN
    return RIGHT if all(row.evidence == "exact" for row in rows) else BOUNDED


def outages_begin_after_the_election_before(answers: Answers, truth: Truth, end_ms: int) -> str:
    """However much is inferred: the leader elected before was elected."""
    written: dict[tuple[str, int], list[Stood]] = defaultdict(list)
    for state in truth.states:
        written[state.topic, state.partition].append(state)
    verdict = UNKNOWN
    for row in answers["partition_outages"]:
        its = written[row.topic, row.partition]  # type: ignore[attr-defined]
        key = (row.leader, row.leader_epoch)  # type: ignore[attr-defined]
        ended = next((n for n, s in enumerate(its) if (s.leader, s.leader_epoch) == key), None)
        if ended is None or row.ended_by != "elected":  # type: ignore[attr-defined]
            continue
        led = [(state.leader_epoch, state.at_ms) for state in its[:ended] if state.leader >= 0]
        elected_ms = min((at_ms for epoch, at_ms in led if epoch == led[-1][0]), default=0) if led else 0
        if row.start_ms < elected_ms - LAG_MS and row.leader_epoch is not None:  # type: ignore[attr-defined]
            return WRONG
        verdict = RIGHT
    return verdict


def controllers_are_right(answers: Answers, truth: Truth, end_ms: int) -> str:
    """Each tenure is a stay of /controller, within its bounds."""
    seats = {seat.controller_epoch: seat for seat in truth.seats}
    rows: list[Any] = list(answers["controller_tenures"])
    for row in rows:
        seat = seats.get(row.controller_epoch)
        if seat is None or seat.broker != row.broker or seat.from_ms > row.from_ms + LAG_MS:
            return WRONG
        if row.to_ms is not None and seat.to_ms is not None and row.to_lo_ms > seat.to_ms + LAG_MS:
            return WRONG
    if not rows:
        return UNKNOWN
    return RIGHT if all(row.evidence == "exact" for row in rows) else BOUNDED


def how_brokers_went(answers: Answers, truth: Truth, end_ms: int) -> str:
    """An outright answer is the fault of the timeline."""
    found = set()
    for row in answers["failovers"]:
        fault = truth.fault_before(row.broker, row.detected_ms)  # type: ignore[attr-defined]
        how: str = row.how  # type: ignore[attr-defined]
        if how in ("lost", "unknown"):
            found.add(UNKNOWN)
        elif fault is not None and how not in _FAULTS[fault["what"]] and not _is_at_end(truth, row):
            found.add(WRONG)
        else:
            found.add(RIGHT)
    return WRONG if WRONG in found else UNKNOWN if UNKNOWN in found or not found else RIGHT


def _is_at_end(truth: Truth, row: Any) -> bool:
    """As the recording ended, everything was stopped; and ZooKeeper's own faults are no broker's in particular."""
    whats = ("end", "zk_kill", "zk_stop", "zk_start", "depose")
    ends = [one["at_ms"] for one in truth.timeline if one["what"] in whats]
    return any(at_ms - LAG_MS <= row.detected_ms <= at_ms + 30_000 for at_ms in ends)


def went_between(answers: Answers, truth: Truth, end_ms: int) -> str:
    """A process was killed after its last word that is here; where its session tells about when, that is true."""
    verdict = UNKNOWN
    for row in answers["failovers"]:
        fault = truth.fault_before(row.broker, row.detected_ms)  # type: ignore[attr-defined]
        if fault is None or fault["what"] != "kill" or row.last_seen_ms is None:  # type: ignore[attr-defined]
            continue
        if row.how == "crashed" and row.last_seen_ms > fault["at_ms"] + LAG_MS:  # type: ignore[attr-defined]
            return WRONG
        about_ms = row.went_about_ms  # type: ignore[attr-defined]
        if about_ms is not None and abs(about_ms - fault["at_ms"]) > 2_500:
            return WRONG
        verdict = BOUNDED if about_ms is not None else verdict
    return verdict


def the_logs_end_with_their_last_line(answers: Answers, truth: Truth, end_ms: int) -> str:
    rows: list[Any] = list(answers["log_spans"])
    if not rows:
        return UNKNOWN
    return RIGHT if abs(max(row.to_ms for row in rows) - end_ms) <= 50 else WRONG


def live_brokers_at_the_end_are_right(answers: Answers, truth: Truth, end_ms: int) -> str:
    """A broker that is drawn as gone for good where the logs end has gone."""
    last: dict[int, Any] = {}
    for row in answers["broker_lives"]:
        last[row.broker] = row  # type: ignore[attr-defined]
    for broker, row in last.items():
        begun = [one["at_ms"] for one in truth.timeline if one.get("broker") == broker and one["what"] == "start"]
        # a start of which these logs may have a line, of itself or of its controller
        if row.ended in ("crashed", "stopped") and any(row.gone_ms < at_ms < end_ms - 20_000 for at_ms in begun):
            spoken = [one for one in answers["failovers"] if one.broker == broker]  # type: ignore[attr-defined]
            if not spoken or row.last_seen_ms > max(one.detected_ms for one in spoken) + LAG_MS:  # type: ignore[attr-defined]
                return WRONG
    return RIGHT if last else UNKNOWN


def unclean_elections(answers: Answers, truth: Truth, end_ms: int) -> str:
    """No election is called unclean that was not."""
    known, before = set(), dict[tuple[str, int], Stood]()
    for state in truth.states:
        last = before.get((state.topic, state.partition))
        if last is not None and last.life == state.life and state.leader not in (-1, *last.isr):
            known.add((state.topic, state.partition, state.leader))
        before[state.topic, state.partition] = state
    said = {(row.topic, row.partition, row.leader) for row in answers["unclean_elections"]}  # type: ignore[attr-defined]
    if said - known:
        return WRONG
    return RIGHT if said == known and answers["leader_changes"] else UNKNOWN if not said else BOUNDED


def sentences_agree(answers: Answers, truth: Truth, end_ms: int) -> str:
    """One thing has one number on the first screen."""
    verdict, summary = verdict_for(answers), dict(summary_for(answers))
    longest = verdict.numbers["longest"]
    if not summary or longest == "-":
        return UNKNOWN
    return RIGHT if f"({longest})" in summary["Which partitions?"] else WRONG


QUESTIONS: Final = (
    is_over,
    elections_that_ended_outages,
    outages_lie_in_bounds,
    outages_begin_after_the_election_before,
    controllers_are_right,
    how_brokers_went,
    went_between,
    the_logs_end_with_their_last_line,
    live_brokers_at_the_end_are_right,
    unclean_elections,
    sentences_agree,
)


def cells_of(name: str, subset: Subset, out: Path) -> dict[str, str]:
    """Each question's cell."""
    logs = written(subset, DATA / name, out)
    files = survey(find_logs([str(logs)]), "kafka", Zones())
    answers = conclude(files).answers
    moments = [_at(text) for path in logs.rglob("*.log*") for text in _edges(path.read_bytes())]
    return {one.__name__: one(answers, truth_of(name), max(moments)) for one in QUESTIONS}


def brokers_of(name: str) -> list[str]:
    return sorted(path.name for path in (DATA / name).glob("broker*"))


def all_of(names: list[str]) -> list[Any]:
    return [
        pytest.param(name, subset, id=f"{name}: {subset.name}")
        for name in names
        for subset in subsets(brokers_of(name))
    ]


QUICK: Final = ("all", "without server", "only state-change", "INFO", "without the last third")


def check(name: str, subset: Subset, out: Path) -> None:
    cells = cells_of(name, subset, out)
    wrong = [question for question, cell in cells.items() if cell == WRONG]
    assert not wrong, (name, subset.name, wrong)
    if subset.name == "all":
        by_cell: dict[str, list[str]] = defaultdict(list)
        for question, cell in cells.items():
            by_cell[cell].append(question)
        assert cells["the_logs_end_with_their_last_line"] == RIGHT
        assert Counter(cells.values())[RIGHT] >= 5, by_cell


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "subset"), [one for one in all_of(["kafka-3.9.1", "kafka-3.9.1-info"]) if one.values[1].name in QUICK]
)
def test_nothing_is_said_that_is_false(name: str, subset: Subset, tmp_path: Path) -> None:
    check(name, subset, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "subset"),
    [
        *(one for one in all_of(["kafka-3.9.1", "kafka-3.9.1-info"]) if one.values[1].name not in QUICK),
        *all_of([f"kafka-older/{version}" for version in OLDER]),
    ],
)
def test_nothing_is_said_that_is_false_of_any_recording(name: str, subset: Subset, tmp_path: Path) -> None:
    check(name, subset, tmp_path)
