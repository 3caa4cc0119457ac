"""The commands of stories about replicas that move and topics that grow. Importing it teaches `Story` these lines."""

from __future__ import annotations

import re

from controller.core.events import GrowTopicAsked, ReassignAsked
from controller.core.formats import encode_targets
from controller.core.model import Replicas
from controller.core.project.znodes import REASSIGN, topic_path
from tests.core.reassign_support import node_seen
from tests.scenarios.story import Story, command, numbers


@command(r"reassign (\S+)-(\d+) ([\d ]+)")
def reassign(story: Story, topic: str, number: str, replicas: str) -> None:
    story.happens(ReassignAsked({(topic, int(number)): numbers(replicas)}))


@command(r"cancel (\S+)-(\d+)")
def cancel(story: Story, topic: str, number: str) -> None:
    story.happens(ReassignAsked({(topic, int(number)): None}))


@command(r"reassign node ((?:\S+-\d+ [\d:]+ ?)+)")
def write_node(story: Story, entries: str) -> None:
    """`reassign node orders-0 4:5 orders-1 2`, as Kafka's tools ask for it."""
    targets: dict[tuple[str, int], Replicas] = {}
    for topic, number, replicas in re.findall(r"(\S+)-(\d+) ([\d:]+)", entries):
        targets[topic, int(number)] = numbers(replicas)
    become(story, encode_targets(targets).decode())


@command(r"reassign node becomes (.*)")
def become(story: Story, data: str) -> None:
    story.zookeeper.put(REASSIGN, data.encode())
    story.happens(node_seen(story.zookeeper))


@command(r"new term with the reassign node")
def begin_term(story: Story) -> None:
    story.tell("new term")
    story.happens(node_seen(story.zookeeper))


@command(r"another tool rewrites with version 1: (\S+) ([\d:]+(?: [\d:]+)*)")
def rewrite(story: Story, topic: str, assignment: str) -> None:
    listed = ",".join(f'"{number}":{list(numbers(one))}' for number, one in enumerate(assignment.split()))
    story.zookeeper.put(topic_path(topic), f'{{"version":1,"partitions":{{{listed}}}}}'.encode())
    story.happens(story.zookeeper.topics_seen())


@command(r"grow (\S+) (\d+)(?: with ([\d:]+(?: [\d:]+)*))?")
def grow(story: Story, topic: str, count: str, assignment: str | None) -> None:
    """`grow orders 3 with 2:3 3:1`: the replicas of the new partitions."""
    placed = None
    if assignment is not None:
        first = len(story.cluster.topics[topic].partitions)
        placed = {first + at: numbers(one) for at, one in enumerate(assignment.split())}
    story.happens(GrowTopicAsked(topic, int(count), placed))
