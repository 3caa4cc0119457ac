"""The commands of stories about elections, drains, configuration, directories, terms and forecasts. Importing it
teaches `Story` these lines."""

from __future__ import annotations

import msgspec

from controller.core.decide.drains import remaining
from controller.core.events import (
    ConfigAsked,
    ConfigsSeen,
    DrainAsked,
    ElectAsked,
    ElectionNodeSeen,
    LeaderAndIsrAnswered,
    LogDirsSeen,
    TermTold,
    TimePassed,
    UndrainAsked,
)
from controller.core.formats import ConfigZnode, DrainZnode, FormatError, PartitionsZnode, decode, encode
from controller.core.project.znodes import DRAINING, LOG_DIR_EVENTS, PREFERRED_ELECTION
from controller.core.questions.explain import explain
from controller.core.questions.whatif import what_if
from tests.scenarios.story import Story, command, numbers


def partitions(names: str) -> list[tuple[str, int]]:
    """`orders-0 users-1`"""
    return [(topic, int(number)) for topic, _, number in (name.rpartition("-") for name in names.split())]


# ---------------------------------------------------------------------- elections


@command(r"prefer (.+)")
def prefer(story: Story, names: str) -> None:
    """`prefer all`, or `prefer orders-0 users-1`."""
    story.happens(ElectAsked(False, None if names == "all" else partitions(names)))


@command(r"elect uncleanly (.+)")
def elect_uncleanly(story: Story, names: str) -> None:
    story.happens(ElectAsked(True, partitions(names)))


@command(r"election node becomes (.*)")
def write_election_node(story: Story, data: str) -> None:
    story.zookeeper.put(PREFERRED_ELECTION, data.encode())
    version = story.zookeeper.nodes[PREFERRED_ELECTION].version
    try:
        znode = decode(data.encode(), PartitionsZnode)
    except FormatError as error:
        story.happens(ElectionNodeSeen((), version, str(error)))
        return
    story.happens(ElectionNodeSeen([(one.topic, one.partition) for one in znode.partitions], version))


@command(r"election node ((?:\S+-\d+ ?)+)")
def ask_by_election_node(story: Story, names: str) -> None:
    """As Kafka's tools ask for it."""
    listed = [{"topic": topic, "partition": number} for topic, number in partitions(names)]
    write_election_node(story, msgspec.json.encode({"version": 1, "partitions": listed}).decode())


@command(r"it is time to balance")
def balance(story: Story) -> None:
    story.happens(TimePassed(is_balance_due=True))


# ---------------------------------------------------------------------- drains


@command(r"(drain|shut down) (\d+)( of an earlier life)?")
def drain(story: Story, how: str, broker_id: str, is_earlier: str | None) -> None:
    number = int(broker_id)
    epoch = story.cluster.brokers[number].epoch - (is_earlier is not None)
    settled = story.happens(DrainAsked(number, epoch, is_shutdown=how == "shut down"))
    if not settled.refusals:
        left = [str(one) for one in remaining(story.cluster, number)]
        story.transcript.append(f"  answer remaining: {' '.join(left) or 'nothing'}")


@command(r"undrain (\d+)")
def undrain(story: Story, broker_id: str) -> None:
    story.happens(UndrainAsked(int(broker_id)))


@command(r"a drain of (\d+) was granted, and no more")
def grant(story: Story, broker_id: str) -> None:
    """By a controller that died before it could move anything."""
    epoch = story.cluster.brokers[int(broker_id)].epoch
    story.zookeeper.put(f"{DRAINING}/{broker_id}", encode(DrainZnode(epoch, "hand")))


@command(r"new term, drains go on")
def begin_term(story: Story) -> None:
    """As a term does it: granted drains are asked for again."""
    story.tell("new term")
    for broker_id, granted in sorted(story.cluster.duties.drains.items()):
        story.happens(DrainAsked(broker_id, granted.epoch, granted.is_shutdown))


# ---------------------------------------------------------------------- configuration


@command(r"(another tool sets|set) (topics|brokers)/(\S+)((?: \S+=\S*)*)")
def configure(story: Story, who: str, kind: str, entity: str, pairs: str) -> None:
    """`set topics/orders a=1 b=`: an empty value takes the override away."""
    values = dict(pair.split("=", 1) for pair in pairs.split())
    if who == "set":
        story.happens(ConfigAsked(kind, entity, {key: value or None for key, value in values.items()}))
        return
    story.zookeeper.put(f"/config/{kind}/{entity}", encode(ConfigZnode(values)))
    seen = {entity: values}
    story.happens(ConfigsSeen(seen, {}) if kind == "topics" else ConfigsSeen({}, seen))


# ---------------------------------------------------------------------- directories


@command(r"broker (\d+) announces a lost directory")
def announce(story: Story, broker_id: str) -> None:
    path = f"{LOG_DIR_EVENTS}/log_dir_event_{story.events:010}"
    story.zookeeper.put(path, b'{"version":1,"broker":%s,"event":1}' % broker_id.encode())
    story.happens(LogDirsSeen(frozenset({int(broker_id)}), {path: 0}))


@command(r"broker (\d+) answers(?:: failed ((?:\S+-\d+ ?)+?))?(?:[:,] served ((?:\S+-\d+ ?)+))?")
def answer(story: Story, broker_id: str, failed: str | None, served: str | None) -> None:
    """Its answer about the replicas that a LeaderAndIsr named."""
    number, topics = int(broker_id), story.cluster.topics
    said = [
        frozenset((topics[topic].topic_id or "", number) for topic, number in partitions(names or ""))
        for names in (served, failed)
    ]
    story.happens(LeaderAndIsrAnswered(number, story.cluster.brokers[number].epoch, *said))


# ---------------------------------------------------------------------- terms and forecasts


@command(r"the term is told at (\d+)(?:, the one before: (.+))?")
def tell_term(story: Story, from_ms: str, why_before: str | None) -> None:
    story.happens(TermTold(int(from_ms), {"told": 12.5}, why_before=why_before or "unknown"))


@command(r"explain (\S+)-(\d+)")
def explain_partition(story: Story, topic: str, number: str) -> None:
    said = explain(story.cluster, topic, int(number))
    story.transcript += [f"  broker {one.broker_id}: {one.why}" for one in said.replicas]
    story.transcript += [
        f"  offline election: {said.offline_election}",
        f"  preferred election: {said.preferred_election}",
        f"  unclean election: {said.unclean_election}",
    ]


@command(r"what if ([\d ]+) die")
def forecast(story: Story, ids: str) -> None:
    found = what_if(story.cluster, frozenset(numbers(ids)), story.now_ms, story.events)
    story.transcript += [
        *(f"  {one.topic}-{one.partition} moves from {one.source} to {one.target}" for one in found.moves),
        f"  offline: {' '.join(found.offline) or 'nothing'}",
        f"  last in sync: {' '.join(found.last_in_sync) or 'nothing'}",
        f"  {found.state_writes} states in {found.transactions} transactions, {found.requests} requests, "
        f"{found.unclean_elections} unclean elections",
        *(f"  {one.count} {one.source} -> {one.target}" for one in found.state_moves),
    ]
