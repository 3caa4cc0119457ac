"""`make chaos SEED=… MINUTES=…`: round after round, each with a cluster of its own, judged; a table at the end.

Round n of seed 7 is `7.n`. With `7.n` as the seed that round is played alone. The files of a round are kept when the
checker found something.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import structlog

from tests.faults.chaos.foreign import Program, named, programs_here
from tests.faults.chaos.harms import HARMS
from tests.faults.chaos.round import Outcome, play
from tests.faults.chaos.schedule import FIRE_S, Schedule, schedule_for
from tests.faults.checker.records import sent_anew
from tests.faults.checker.verdict import Finding, report
from tests.spec.following import follow_history

CLEAN, FOUND, VOID = 0, 1, 3
#: of the rounds played so many have to count; while none does, so many are played though the time is over
COUNTED_MIN = 0.5
TRIES = 3
KEPT = Path("var") / "chaos"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--seed", help="7: its rounds are 7.1, 7.2, …; 7.2: that round alone; drawn when not given")
    parser.add_argument("--minutes", type=float, default=5.0, help="no round begins afterwards")
    parser.add_argument("--fire", type=float, default=FIRE_S, help="seconds under fire in each round")
    parser.add_argument("--folder", type=Path, default=KEPT)
    parser.add_argument("--spec", action="store_true", help="hold what happened against the specification, too")
    parser.add_argument("--records", action="store_true", help="brokers keep records, and foreign clients rely on them")
    parser.add_argument("--hostile", action="store_true", help="beside a tool that forbids, removes and rewrites nodes")
    parser.add_argument("--show", action="store_true", help="print the schedule, and play nothing")
    options = parser.parse_args(arguments)
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # broken connections are part of the test
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    seed = options.seed or str(random.SystemRandom().randrange(1, 10**6))
    if options.show:
        name = seed if "." in seed else f"{seed}.1"
        say(*lines_of(_schedule(name, options)))
        return CLEAN
    say(f"seed {seed}: {options.minutes:g} minutes, {options.fire:g} s of fire in each round")
    programs: list[Program] = []
    if options.records:
        programs, missing = programs_here(options.folder)
        say(*named(programs, missing))
    followed: Counter[str] | None = Counter() if options.spec else None
    outcomes = list(_played(seed, options, followed, programs))
    say("", *summary_of(outcomes, seed))
    if followed is not None:
        say(f"specification {followed['traces']} traces, {followed['steps']:,} steps, {followed['rejected']} rejected")
    return exit_code_of(outcomes)


def _schedule(name: str, options: argparse.Namespace) -> Schedule:
    return schedule_for(name, fire_s=options.fire, has_records=options.records, is_hostile=options.hostile)


def exit_code_of(outcomes: list[Outcome]) -> int:
    if any(one.findings for one in outcomes):
        return FOUND
    counted = sum(not one.void for one in outcomes)
    return CLEAN if counted >= COUNTED_MIN * len(outcomes) else VOID


def _played(
    seed: str, options: argparse.Namespace, followed: Counter[str] | None, programs: list[Program]
) -> Iterator[Outcome]:
    end, number, counted = time.monotonic() + options.minutes * 60, 1, 0
    while True:
        name = seed if "." in seed else f"{seed}.{number}"
        room = options.folder / name
        shutil.rmtree(room, ignore_errors=True)
        room.mkdir(parents=True)
        outcome = asyncio.run(play(_schedule(name, options), room, programs))
        if followed is not None:
            outcome = outcome._replace(findings=[*outcome.findings, *_unspecified(outcome, followed, room)])
        say(row_of(outcome))
        if outcome.findings:
            say(
                *report(outcome.history, outcome.findings),
                f"evidence: {room}; again: make chaos SEED={name}{_how(options)}",
            )
            (room / "history.json").write_bytes(msgspec.json.encode(_plain(outcome)))
        else:
            shutil.rmtree(room)
        yield outcome
        counted += not outcome.void
        if "." in seed or (time.monotonic() >= end and (counted or number >= TRIES)):
            return
        number += 1


def _how(options: argparse.Namespace) -> str:
    """As `make` is told."""
    switches = {"SPEC": options.spec, "RECORDS": options.records, "HOSTILE": options.hostile}
    return "".join(f" {name}=1" for name, is_on in switches.items() if is_on)


def _unspecified(outcome: Outcome, counts: Counter[str], room: Path) -> Iterator[Finding]:
    """Yield the steps that no action of the specification allows, and write each trace to a file. A history that the
    checker cannot judge makes no traces."""
    if any(one.rule == "evidence" for one in outcome.findings):
        return
    for spec, traces in follow_history(outcome.schedule.seed, outcome.history).items():
        for one in traces:
            counts["traces"] += 1
            counts["steps"] += len(one.trace.steps)
            if not one.is_accepted:
                counts["rejected"] += 1
                told = (f"{step}  {where}\n" for step, where in zip(one.trace.steps, one.trace.where, strict=True))
                (room / f"rejected-{counts['rejected']}.txt").write_text("".join([f"{one.stuck_at}\n", *told]))
                yield Finding(f"{spec}.tla", None, one.stuck_at)


def _plain(outcome: Outcome) -> dict[str, object]:
    history = outcome.history
    return {
        "findings": [str(one) for one in outcome.findings],
        "faults": [one._asdict() for one in history.faults],
        "calls": [{**one._asdict(), "detail": repr(one.detail)} for one in history.calls],
        "starved": [one._asdict() for one in history.starved],
        "bugs": history.bugs,
    }


def say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def row_of(outcome: Outcome) -> str:
    calls = Counter(one.outcome for one in outcome.history.calls)
    fell = outcome.hits.total() + outcome.misses.total()
    verdict = f"{len(outcome.findings)} FOUND" if outcome.findings else "clean"
    rested = "never rested" if outcome.rested_ms is None else f"rested in {outcome.rested_ms / 1000:.1f} s"
    void = "".join(f"; does not count: {one}" for one in outcome.void)
    waited_s = sum(one.waited_ms for one in outcome.history.starved if one.broker_id is None) / 1_000
    return (
        f"{outcome.schedule.seed:12} {verdict:8} {outcome.schedule.brokers} brokers on {outcome.schedule.servers}"
        f"{' with secrets' if outcome.schedule.has_secrets else ''}{_records_text(outcome)}, "
        f"{outcome.hits.total()} of {fell} faults hit, {calls['ok']} of {calls.total()} operations done, "
        f"{_terms(outcome)} terms, {rested}, ZooKeeper waited {waited_s:.0f} s for processors, "
        f"{outcome.took_s:.0f} s{void}"
    )


def _records_text(outcome: Outcome) -> str:
    records = outcome.history.records
    if records is None:
        return ""
    anew = max((len(sent_anew(copy.batches)) for copy in records.copies), default=0)
    again = f", {anew} sent again in another life of their producer" if anew else ""
    return f" with {_acknowledged(outcome):,} records acknowledged{again}"


def _acknowledged(outcome: Outcome) -> int:
    records = outcome.history.records
    return 0 if records is None else sum(one.how == "acknowledged" for one in records.relied)


def _lost_in(outcomes: list[Outcome]) -> int:
    """As replicas said that they truncated committed records, by elections that could lose some."""
    lines = (line for one in outcomes for line in one.history.lines if line["kind"] == "truncation")
    return sum(line["records_lost"] for line in lines)


def _terms(outcome: Outcome) -> int:
    writes = (write for commit in outcome.history.commits for write in commit.writes)
    return sum((one.kind, one.path) == ("create", "/controller") for one in writes)


def lines_of(schedule: Schedule) -> Iterator[str]:
    has = {"secrets": schedule.has_secrets, "records": schedule.has_records, "a big topic": schedule.has_big_topic}
    shape = "".join(f", with {what}" for what, is_so in has.items() if is_so)
    yield f"{schedule.seed}: {schedule.brokers} brokers, {schedule.servers} ZooKeeper servers{shape}"
    for act in schedule.acts:
        yield f"{act.at_s:7.1f} s  {act.harm} on {act.role} for {act.length_s:g} s"


def summary_of(outcomes: list[Outcome], seed: str) -> Iterator[str]:
    hits = sum((one.hits for one in outcomes), Counter[str]())
    misses = sum((one.misses for one in outcomes), Counter[str]())
    calls = Counter(f"{c.what} {c.outcome}" for one in outcomes for c in one.history.calls)
    yield f"{'fault':34} {'hazard':8} {'hit':>5} {'missed':>7}"
    for name in sorted(HARMS, key=lambda name: (-hits[name], name)):
        if hits[name] or misses[name]:
            yield f"{name:34} {HARMS[name].hazards:8} {hits[name]:>5} {misses[name]:>7}"
    yield ""
    kinds = sorted({call.partition(" ")[0] for call in calls})
    yield f"{'operation':34} {'ok':>5} {'refused':>8} {'unknown':>8}"
    for kind in kinds:
        counts = [calls[f"{kind} {outcome}"] for outcome in ("ok", "refused", "unknown")]
        yield f"{kind:34} {counts[0]:>5} {counts[1]:>8} {counts[2]:>8}"
    yield ""
    void = [one for one in outcomes if one.void]
    yield f"seed          {seed}"
    yield f"rounds        {len(outcomes)}, {len(void)} do not count" + "".join(f" {one.schedule.seed}" for one in void)
    yield f"minutes       {sum(one.took_s for one in outcomes) / 60:.1f}"
    yield f"faults        {hits.total()} hit, {misses.total()} missed"
    yield f"operations    {calls.total()}"
    told = [rpc for one in outcomes for rpc in one.history.rpcs]
    yield f"requests      {len(told)} of controllers, {sum(rpc.rows is not None for rpc in told)} seen row by row"
    yield f"writes        {sum(len(one.history.commits) for one in outcomes)} of ZooKeeper's transactions replayed"
    yield f"terms         {sum(_terms(one) for one in outcomes)}"
    with_records = [one for one in outcomes if one.history.records is not None]
    if with_records:
        acknowledged, lost = sum(map(_acknowledged, with_records)), _lost_in(with_records)
        yield f"records       {acknowledged:,} acknowledged in {len(with_records)} rounds, {lost} said to be lost"
    failed = [one.schedule.seed for one in outcomes if one.findings]
    yield f"found         {', '.join(failed) if failed else 'nothing'}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
