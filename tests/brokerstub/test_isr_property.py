"""From any history, the ISR ends as the fetching replicas. No request ever changes while it is open."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.core.codes import Code
from controller.wire.bodies import (
    AlteredRow,
    AlteredTopic,
    AlterPartitionRequest,
    decode,
)
from tests.brokerstub.leader import LAG_MS, Leader
from tests.brokerstub.support import broker, fetch, row

PARTITIONS = (0, 1)
FOLLOWERS = (2, 3)


class World:
    """A leader, two followers, and a controller that grants requests that are up to date."""

    def __init__(self) -> None:
        self.leader = Leader()
        self.sequences = dict.fromkeys(FOLLOWERS, 0)
        self.leader.tell(*(row(partition) for partition in PARTITIONS))

    def lead(self, partition: int, isr: tuple[int, ...]) -> None:
        told = self.leader.replicas.told["id-orders", partition]
        self.leader.tell(row(partition, epoch=told.leader_epoch + 1, isr=isr, version=told.version + 1))

    def list_all(self, follower: int, behind: int = 0) -> None:
        told = self.leader.replicas.told
        entries = [(partition, told["id-orders", partition].leader_epoch - behind) for partition in PARTITIONS]
        self.sequences[follower] = 0
        epoch = self.leader.brokers[follower].epoch
        assert self.leader.fetched(follower, *entries, epoch=epoch) == Code.NONE

    def keep_on(self, follower: int) -> None:
        epoch = self.leader.brokers[follower].epoch
        self.sequences[follower] += 1
        if self.leader.fetched(follower, sequence=self.sequences[follower], epoch=epoch) != Code.NONE:
            self.list_all(follower)

    def forget(self, follower: int, partition: int) -> None:
        request = fetch(session=7, sequence=self.sequences[follower] + 1, forgotten=(partition,))
        epoch = self.leader.brokers[follower].epoch
        answer, moved = self.leader.sessions.take(follower, epoch, request, self.leader.now_ms)
        self.leader.isr.on_moved(moved, self.leader.now_ms)
        self.sequences[follower] += answer.error_code == Code.NONE

    def bounce(self, follower: int) -> None:
        self.leader.on_broker(broker(follower, self.leader.brokers[follower].epoch + 1))

    def answer(self, refuse: bool = False) -> None:
        """Answer the open question, if there is one."""
        question = self.leader.ask()
        if question is None:
            return
        asked = [one for topic in decode(question.body, AlterPartitionRequest).topics for one in topic.partitions]
        answers = []
        for proposal in asked:
            told = self.leader.replicas.told["id-orders", proposal.partition]
            isr, version, code = told.isr, told.version, Code.INVALID_UPDATE_VERSION
            is_current = (proposal.leader_epoch, proposal.version) == (told.leader_epoch, told.version)
            if is_current and not refuse:
                isr, version, code = tuple(member.broker_id for member in proposal.isr), version + 1, Code.NONE
            answers.append(AlteredRow(proposal.partition, code, 1, told.leader_epoch, isr, version, 0))
        self.leader.isr.take_answer([AlteredTopic("id-orders", answers)], self.leader.now_ms)


partitions, followers = st.sampled_from(PARTITIONS), st.sampled_from(FOLLOWERS)
steps = st.one_of(
    st.tuples(st.just("lead"), partitions, st.sampled_from([(1,), (1, 2), (1, 3), (1, 2, 3)])),
    st.tuples(st.just("list_all"), followers, st.sampled_from([0, 0, 1, -1])),
    st.tuples(st.just("keep_on"), followers),
    st.tuples(st.just("forget"), followers, partitions),
    st.tuples(st.just("bounce"), followers),
    st.tuples(st.just("answer"), st.booleans()),
    st.tuples(st.just("pass_time"), st.sampled_from([1, 500, LAG_MS, LAG_MS + 1])),
)


@given(st.lists(steps, max_size=40), st.sets(followers))
def test_the_isr_ends_as_the_fetching_replicas(history: list[tuple[str, int]], fetching: set[int]) -> None:
    world = World()
    for name, *arguments in history:
        if name == "pass_time":
            world.leader.pass_time(*arguments)
        else:
            before = world.leader.isr.question
            body = before.body if before else b""
            getattr(world, name)(*arguments)
            if before is not None and world.leader.isr.question is before:
                assert before.body == body
    for follower in fetching:
        world.list_all(follower)
    for _ in range(2 * LAG_MS // 1_000 + 1):
        world.leader.pass_time(1_000)
        for follower in fetching:
            world.keep_on(follower)
        world.answer()
    world.answer()
    for partition in PARTITIONS:
        assert set(world.leader.replicas.told["id-orders", partition].isr) == {1, *fetching}
    assert world.leader.is_idle()
