"""Our types for Kafka's znodes against everything that two real Kafka 3.9.1 clusters ever wrote."""

from __future__ import annotations

import pytest

from controller.core import formats
from tests.recordings import RECORDINGS, Recording
from tests.support.znodes import decode_as, generic, kind_of

pytestmark = pytest.mark.parametrize("recording", RECORDINGS, ids=repr)


def test_the_recording_can_be_replayed_to_its_end(recording: Recording) -> None:
    last_zxid = recording.transactions[-1][0].zxid
    trees = dict(recording.trees([0, last_zxid, last_zxid + 1]))
    assert trees[0] == {}
    assert trees[last_zxid] == trees[last_zxid + 1]
    epochs = [int(tree["/controller_epoch"].data) for _, tree in recording.trees(recording.claims)]
    assert epochs == list(range(1, len(epochs) + 1))


def test_every_path_is_known_by_its_own_type(recording: Recording) -> None:
    unknown = {path for path, _ in recording.values() if kind_of(path) is None}
    assert unknown == set()


def test_only_paths_that_hold_nothing_have_no_type(recording: Recording) -> None:
    untyped = {
        path for path, data in recording.values() if data and (kind := kind_of(path)) is not None and kind.holds is None
    }
    assert untyped == set()


def test_every_value_encodes_again_to_an_equal_object(recording: Recording) -> None:
    kinds = set()
    for path, data in recording.values():
        kind = kind_of(path)
        if data and kind is not None:
            kinds.add(kind.name)
            again = formats.encode(decode_as(kind, data))
            assert generic(again) == generic(data), path
    assert kinds >= {"controller", "controller epoch", "broker", "topic", "state", "config", "cluster id"}


def test_states_and_topics_are_written_as_kafka_wrote_them(recording: Recording) -> None:
    for path, data in recording.values():
        kind = kind_of(path)
        assert kind is not None
        if kind.holds is formats.StateZnode:
            again = formats.encode_state(formats.decode_state(data))
        elif kind.holds is formats.TopicZnode and generic(data)["version"] == 3:
            topic_id, assignment = formats.decode_topic(data)
            assert topic_id is not None
            again = formats.encode_topic(topic_id, assignment)
        else:
            continue
        assert generic(again) == generic(data), path
