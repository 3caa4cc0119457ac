"""True on every part of the input: recorded clusters with some of their logs taken away, question by question, against
ZooKeeper's record and the faults of the timeline. A cell is right, bounded (the truth lies within the answer), unknown
(and marked so) or wrong; none may be wrong.

`.venv/bin/python -m tests.spark.subsets` writes the table, `subsets.tsv`: a line for each recording and subset, with
how wide the widest bound of an answer is, and how long the longest silence of a broker, by which bounds are limited. A
change that makes a cell worse, or wider, shows in it.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import msgspec

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
OURS: Final = ("deaths", "cuts", "moves")
_MOMENT: Final = re.compile(rb"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d,\d{3}|(?<=^\{\"at_ms\":)\d{13}", re.MULTILINE)


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


def subsets(name: str) -> Iterator[Subset]:
    """Each kind of log taken away, alone and in pairs; each broker's, and of our own clusters two brokers'; a level; a
    third of the time."""
    brokers = sorted(path.name for path in (DATA / name).glob("broker*"))
    yield Subset("all", lambda broker, name: True)
    for gone in brokers:
        yield Subset(f"without {gone}", lambda broker, name, gone=gone: broker != gone)  # type: ignore[misc]
    if is_ours(name):  # one kind of log, of one level
        for pair in combinations(brokers, 2):
            words = f"without {pair[0]} and {pair[1]}"
            yield Subset(words, lambda broker, name, pair=pair: broker not in pair)  # type: ignore[misc]
    else:
        for kind in KINDS:
            yield Subset(f"without {kind}", lambda broker, name, kind=kind: not name.startswith(kind))  # type: ignore[misc]
            yield Subset(f"only {kind}", lambda broker, name, kind=kind: name.startswith(kind))  # type: ignore[misc]
        yield Subset("INFO", lambda broker, name: True, lambda line, part, parts: not _is_below_info(line))
        yield Subset("INFO, only state-change", _is_state_change, lambda line, part, parts: not _is_below_info(line))
    yield Subset("without the first third", lambda broker, name: True, lambda line, part, parts: part * 3 >= parts)
    yield Subset("without the last third", lambda broker, name: True, lambda line, part, parts: part * 3 < parts * 2)


def is_ours(name: str) -> bool:
    return name.startswith("klamm/")


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
    if text.isdigit():
        return int(text)
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
        ended = next((n for n, state in enumerate(its) if _ends(row, state)), None)
        if ended is None or row.ended_by != "elected":  # type: ignore[attr-defined]
            continue
        led = [(state.leader_epoch, state.at_ms) for state in its[:ended] if state.leader >= 0]
        elected_ms = min((at_ms for epoch, at_ms in led if epoch == led[-1][0]), default=0) if led else 0
        if row.start_ms < elected_ms - LAG_MS and row.leader_epoch is not None:  # type: ignore[attr-defined]
            return WRONG
        verdict = RIGHT
    return verdict


def _ends(row: Any, state: Stood) -> bool:
    """Lines of before 1.0 name no leader epoch."""
    if row.leader_epoch is None:
        return bool(state.leader == row.leader and abs(state.at_ms - row.end_ms) <= LAG_MS)
    return (state.leader, state.leader_epoch) == (row.leader, row.leader_epoch)


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
    """A process was killed between its last word that is here and the moment it was missed; where its session tells
    about when, that is true."""
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
        verdict = BOUNDED
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


class Cell(NamedTuple):
    """`width_ms`: how wide the widest bound of the answer is, where it has bounds."""

    grade: str
    width_ms: int | None = None

    def __str__(self) -> str:
        return self.grade if self.width_ms is None else f"{self.grade} {self.width_ms}"


def _outages_width(answers: Answers) -> list[int]:
    return [row.start_hi_ms - row.start_lo_ms for row in answers["partition_outages"]]  # type: ignore[attr-defined]


def _tenures_width(answers: Answers) -> list[int]:
    ended: list[Any] = [row for row in answers["controller_tenures"] if row.to_hi_ms is not None]  # type: ignore[attr-defined]
    return [row.to_hi_ms - row.to_lo_ms for row in ended]


def _went_width(answers: Answers) -> list[int]:
    rows: list[Any] = list(answers["failovers"])
    heard = [(row.detected_ms, row.went_about_ms or row.last_seen_ms) for row in rows]
    return [detected_ms - at_ms for detected_ms, at_ms in heard if at_ms is not None]


WIDTHS: Final = {
    outages_lie_in_bounds: _outages_width,
    controllers_are_right: _tenures_width,
    went_between: _went_width,
}


#: all that ran on ZooKeeper; of ours the last line of each is one of many
RECORDINGS: Final = (
    *(f"klamm/{play}" for play in OURS),
    *("kafka-3.9.1", "kafka-3.9.1-info", "kafka-3.9.1-deletions"),
    *(f"kafka-older/{version}" for version in OLDER),
)
TABLE: Final = Path(__file__).with_name("subsets.tsv")
HEAD: Final = ("recording", "subset", "silence_ms", *(question.__name__ for question in QUESTIONS))


class Line(NamedTuple):
    """Of the table."""

    recording: str
    subset: str
    silence_ms: int  # the longest of a broker, in the logs that are left
    cells: dict[str, Cell]

    def __str__(self) -> str:
        return "\t".join((self.recording, self.subset, str(self.silence_ms), *map(str, self.cells.values())))


def line_for(name: str, subset: Subset, out: Path) -> Line:
    """Reads what the subset leaves, and judges each answer."""
    logs = written(subset, DATA / name, out)
    files = survey(find_logs([str(logs)]), "kafka", Zones())
    answers = conclude(files).answers
    moments = {path.name: _moments_in(logs / path.name) for path in (DATA / name).glob("broker*")}
    last_ms = max(max(its, default=0) for its in moments.values())
    cells = {}
    for question in QUESTIONS:
        widths = WIDTHS[question](answers) if question in WIDTHS else []
        cells[question.__name__] = Cell(question(answers, truth_of(name), last_ms), max(widths, default=None))
    return Line(name, subset.name, _longest_silence_ms(moments.values()), cells)


def _moments_in(folder: Path) -> list[int]:
    return sorted(_at(text) for path in folder.glob("*.log*") for text in _MOMENT.findall(path.read_bytes()))


def _longest_silence_ms(of_brokers: Collection[list[int]]) -> int:
    """Of any broker, in all the time of the logs; one whose logs are away is silent all the time."""
    first, last = min(its[0] for its in of_brokers if its), max(its[-1] for its in of_brokers if its)
    return max(after - before for its in of_brokers for before, after in pairwise([first, *its, last]))


def lines_in_table() -> dict[tuple[str, str], Line]:
    head, *lines = TABLE.read_text(encoding="utf-8").splitlines()
    assert head.split("\t") == [*HEAD]
    found = {}
    for line in lines:
        recording, subset, widest, *cells = line.split("\t")
        said = [(grade, int(width) if width else None) for grade, _, width in (cell.partition(" ") for cell in cells)]
        named = dict(zip(HEAD[3:], (Cell(*one) for one in said), strict=True))
        found[recording, subset] = Line(recording, subset, int(widest), named)
    return found


def _line_of(asked: tuple[str, str]) -> str:
    name, wanted = asked
    with TemporaryDirectory(prefix="klamm-subset-") as out:
        [subset] = [one for one in subsets(name) if one.name == wanted]
        return str(line_for(name, subset, Path(out)))


def main() -> None:
    asked = [(name, subset.name) for name in RECORDINGS for subset in subsets(name)]
    with ProcessPoolExecutor() as workers:
        lines = list(workers.map(_line_of, asked))
    TABLE.write_text("\n".join(["\t".join(HEAD), *lines, ""]), encoding="utf-8")
    cells = Counter(cell.grade for line in lines_in_table().values() for cell in line.cells.values())
    sys.stdout.write(f"{sum(cells.values())} cells: {dict(cells)}\n")


if __name__ == "__main__":
    main()
