"""The language of the stories: one command per line, and the printing of its effects.

A story acts on the model ZooKeeper as brokers, people and other tools would, and lets the controller see it. It must
never decide or explain anything itself: it prints commits, requests and log lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

import msgspec

from controller.core.belief.cluster import Cluster
from controller.core.decide.isr import verdicts_for
from controller.core.decide.reassignment import due_after
from controller.core.decide.topic_ids import draw_topic_id
from controller.core.events import (
    AlterPartitionAsked,
    CreateTopicAsked,
    DeleteTopicAsked,
    Event,
    StatesSeen,
    StopReplicaAnswered,
    TimePassed,
)
from controller.core.formats import encode_marker, encode_state, encode_topic
from controller.core.model import Assignment, Leadership, Replicas
from controller.core.project.lines import Stamp
from controller.core.project.znodes import (
    broker_path,
    marker_path,
    state_path,
    topic_path,
)
from tests.builders import Settled, a_broker, a_proposal, knowing, settle
from tests.core.model_zookeeper import ModelZooKeeper
from tests.core.world import concerned
from tests.scenarios.printing import printed_line, printed_move, printed_state, printed_telling, printed_write

NOTIFICATION = "/isr_change_notification/isr_change_0000000001"
COMMANDS: list[tuple[re.Pattern[str], Callable[..., None]]] = []


def command(pattern: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a method of `Story` as the command of a line of this form; its groups are the arguments."""

    def mark(method: Callable[..., None]) -> Callable[..., None]:
        COMMANDS.append((re.compile(pattern), method))
        return method

    return mark


def numbers(text: str) -> Replicas:
    return tuple(int(one) for one in re.findall(r"-?\d+", text))


class Story:
    """A cluster told line by line; `transcript` holds the effects of each."""

    def __init__(self) -> None:
        self.zookeeper = ModelZooKeeper()
        self.epoch = 0
        self.events = 0
        self.now_ms = 0
        self.delete_enabled = True
        self.cluster = Cluster(controller_id=1, controller_epoch=0)
        self.transcript: list[str] = []

    def tell(self, line: str) -> None:
        """Carry out a line of the story."""
        self.transcript += ["", f"> {line}"]
        before = len(self.transcript)
        for pattern, method in COMMANDS:
            match = pattern.fullmatch(line)
            if match is not None:
                method(self, *match.groups())
                break
        else:
            raise ValueError(f"no command: {line}")
        if len(self.transcript) == before:
            self.transcript.append("  nothing")

    def happens(self, event: Event) -> Settled:
        """An event as the loop takes it; after a conflict the znodes concerned are read again."""
        self.events += 1
        event_id = f"{self.epoch}-{self.events}"
        stamp = Stamp(self.events * 1_000, "story", 1, self.epoch, event_id)
        settled = settle(self.cluster, event, self.zookeeper, now_ms=self.now_ms, seed=self.events, stamp=stamp)
        for writes, telling, lines in zip(settled.writes, settled.tellings, settled.lines_by_step, strict=True):
            self.transcript += [f"  commit {one}" for one in map(printed_write, writes)]
            self.transcript += [f"  tell   {one}" for one in printed_telling(telling)]
            self.transcript += [f"  log    {printed_line(one)}" for one in lines]
        self.transcript += [f"  move   {printed_move(one)}" for one in settled.moves]
        self.transcript += [f"  refuse {one.code.name}: {one.detail}" for one in settled.refusals]
        if settled.conflicts:
            partitions, topics = concerned(settled)
            names = sorted({f"{topic}-{number}" for topic, number in partitions} | topics)
            self.transcript.append(f"  conflict, reads again: {', '.join(names)}")
            zookeeper = self.zookeeper
            self.happens(zookeeper.states_seen(*sorted(partitions)) if partitions else zookeeper.topics_seen())
        if (due := due_after(self.cluster, settled.committed)) is not None:
            self.happens(due)
        return settled

    # ------------------------------------------------------------------ brokers and terms

    @command(r"brokers ([\d ]+)")
    def _brokers(self, ids: str) -> None:
        for broker_id in numbers(ids):
            self.zookeeper.register(a_broker(broker_id))
        self._new_term()

    @command(r"new term")
    def _new_term(self) -> None:
        self.epoch += 1
        self.cluster, event = self.zookeeper.new_term(self.epoch)
        self.cluster.delete_enabled = self.delete_enabled
        self.happens(event)

    @command(r"kill ([\d ]+?)(?: together)?( unnoticed)?")
    def _kill(self, ids: str, unnoticed: str | None) -> None:
        for broker_id in numbers(ids):
            self.zookeeper.remove(broker_path(broker_id))
        if unnoticed is None:
            self.happens(self.zookeeper.brokers_seen())

    @command(r"(?:start|bounce) ([\d ]+?)(?: together)?")
    def _start(self, ids: str) -> None:
        for broker_id in numbers(ids):
            self.zookeeper.register(a_broker(broker_id))
        self.happens(self.zookeeper.brokers_seen())

    # ------------------------------------------------------------------ topics

    @command(r"topic (\S+) ([\d:]+(?: [\d:]+)*)")
    def _topic(self, name: str, assignment: str) -> None:
        replicas = {number: numbers(one) for number, one in enumerate(assignment.split())}
        self.happens(CreateTopicAsked(name, assignment=replicas))

    @command(r"topic (\S+) with (\d+) partitions, (\d+) replicas")
    def _topic_by_counts(self, name: str, partitions: str, factor: str) -> None:
        self.happens(CreateTopicAsked(name, partitions=int(partitions), replication_factor=int(factor)))

    @command(r"another tool gives (\S+) ([\d:]+(?: [\d:]+)*) the id that broker \d+ knows")
    def _decide(self, name: str, assignment: str) -> None:
        replicas = {number: Assignment(numbers(one)) for number, one in enumerate(assignment.split())}
        self.zookeeper.put(topic_path(name), encode_topic(draw_topic_id(Random(name)), replicas))
        self.happens(self.zookeeper.topics_seen())

    @command(r"another tool (?:creates|rewrites) (\S+) ([\d:]+(?: [\d:]+)*)( without an id)?(, unseen)?")
    def _foreign_topic(self, name: str, assignment: str, no_id: str | None, unseen: str | None) -> None:
        known = self.cluster.topics.get(name)
        topic_id = known.topic_id if known is not None else draw_topic_id(Random(name))
        replicas = {number: Assignment(numbers(one)) for number, one in enumerate(assignment.split())}
        self.zookeeper.put(topic_path(name), encode_topic("" if no_id else topic_id or "", replicas))
        if unseen is None:
            self.happens(self.zookeeper.topics_seen())

    @command(r"broker (\d+) (knows no id of|knows the id of) (\S+)")
    def _described(self, broker: str, what: str, name: str) -> None:
        topic_id = draw_topic_id(Random(name)) if what == "knows the id of" else ""
        self.happens(knowing(self.cluster.brokers[int(broker)], **{name: topic_id}))

    @command(r"another tool removes (\S+)")
    def _remove_topic(self, name: str) -> None:
        self.zookeeper.remove(topic_path(name))
        self.happens(self.zookeeper.topics_seen())

    @command(r"delete (\S+)( without the dead)?")
    def _delete(self, name: str, abandon: str | None) -> None:
        self.happens(DeleteTopicAsked(name, abandon_offline=abandon is not None))

    @command(r"another tool marks ([^,]+?)( without the dead)?")
    def _mark(self, names: str, abandon: str | None) -> None:
        for name in names.split():
            self.zookeeper.put(marker_path(name), encode_marker(abandon_offline=abandon is not None))
        self.happens(self.zookeeper.deletions_seen())

    @command(r"broker (\d+) (deleted|refused) (\S+)")
    def _stopped(self, broker: str, answer: str, name: str) -> None:
        topic_id = self.cluster.topics[name].topic_id or ""
        replicas = frozenset((topic_id, number) for number in self.cluster.hosted[int(broker)][name])
        refused: frozenset[tuple[str, int]] = replicas if answer == "refused" else frozenset()
        self.happens(StopReplicaAnswered(int(broker), self.cluster.brokers[int(broker)].epoch, replicas, refused))

    @command(r"topics cannot be deleted")
    def _disable_deletion(self) -> None:
        self.cluster.delete_enabled = self.delete_enabled = False

    @command(r"(\d+) s pass(?:es)?")
    def _time_passes(self, seconds: str) -> None:
        self.now_ms += int(seconds) * 1_000
        self.happens(TimePassed())

    @command(r"the znode of topic (\S+) becomes (.+)")
    def _topic_nonsense(self, name: str, data: str) -> None:
        self.zookeeper.put(topic_path(name), data.encode())
        self.happens(self.zookeeper.topics_seen())

    # ------------------------------------------------------------------ states

    @command(r"isr (\S+)-(\d+) by (\d+): ([\d,]*)(?:, knowing (version|leader epoch) (\d+))?")
    def _isr(self, topic: str, number: str, sender: str, isr: str, what: str | None, known: str | None) -> None:
        given = {} if what is None or known is None else {what.replace(" ", "_"): int(known)}
        self._ask(int(sender), topic, int(number), numbers(isr), **given)

    @command(r"isr (\S+)-(\d+) by (\d+): ([\d,]*), seen before (\d+) bounced")
    def _isr_of_old(self, topic: str, number: str, sender: str, isr: str, bounced: str) -> None:
        old = {one: broker.epoch for one, broker in self.cluster.brokers.items()}
        old[int(bounced)] -= 1
        self._ask(int(sender), topic, int(number), numbers(isr), isr=tuple((one, old[one]) for one in numbers(isr)))

    def _ask(self, sender: int, topic: str, number: int, members: Replicas, **given: object) -> None:
        proposal = a_proposal(self.cluster, topic, number, *members, **given)
        asked = AlterPartitionAsked(sender, self.cluster.brokers[sender].epoch, [proposal])
        settled = self.happens(asked)
        stood = [one for one in settled.of_states() if one not in settled.conflicts]
        [verdict] = verdicts_for(self.cluster, asked, settled.refusals, stood)
        stands = "" if verdict.state is None else f", stands: {printed_state(verdict.state, verdict.version)}"
        self.transcript.append(f"  answer {verdict.code.name}{stands}")

    @command(r"state (\S+)-(\d+) written by somebody else( unannounced)?: leader (-?\d+), epoch (\d+), isr ([\d,]+)")
    def _foreign_state(
        self, topic: str, number: str, quiet: str | None, leader: str, leader_epoch: str, isr: str
    ) -> None:
        state = Leadership(int(leader), int(leader_epoch), numbers(isr), self.epoch)
        self.zookeeper.put(state_path(topic, int(number)), encode_state(state))
        if quiet is None:
            self._announce(topic, int(number))

    @command(r"state (\S+)-(\d+) becomes (.+)")
    def _state_nonsense(self, topic: str, number: str, data: str) -> None:
        self.zookeeper.put(state_path(topic, int(number)), data.encode())
        self._announce(topic, int(number))

    @command(r"state (\S+)-(\d+) is lost")
    def _state_lost(self, topic: str, number: str) -> None:
        self.zookeeper.remove(state_path(topic, int(number)))
        self._announce(topic, int(number))

    @command(r"all partitions of (\S+) are erased")
    def _partitions_erased(self, topic: str) -> None:
        for number in self.cluster.topics[topic].partitions:
            self.zookeeper.remove(state_path(topic, number))
            self.zookeeper.remove(state_path(topic, number).removesuffix("/state"))
        self.zookeeper.remove(f"{topic_path(topic)}/partitions")
        self._announce(topic, 0)

    @command(r"state (\S+)-(\d+) may not be read")
    def _state_hidden(self, topic: str, number: str) -> None:
        [fact] = self.zookeeper.states_seen((topic, int(number))).facts
        self.happens(StatesSeen([msgspec.structs.replace(fact, state=None, trouble="it may not be read")]))

    @command(r"state (\S+)-(\d+) may be read again")
    def _state_shown(self, topic: str, number: str) -> None:
        self.happens(self.zookeeper.states_seen((topic, int(number))))

    def _announce(self, topic: str, number: int) -> None:
        self.zookeeper.put(NOTIFICATION, b'{"version":1,"partitions":[{"topic":"%s"}]}' % topic.encode())
        self.happens(self.zookeeper.states_seen((topic, number), notifications=[NOTIFICATION]))
