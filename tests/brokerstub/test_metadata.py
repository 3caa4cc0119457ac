"""The metadata cache: its content after each request, and that rows stay bytes meanwhile."""

from __future__ import annotations

import msgspec
import pytest

from brokerstub.metadata import MetadataCache
from brokerstub.multipart_lists import OutOfOrderError
from controller.api.ports import ClusterView
from controller.wire.bodies import StatesRequest
from tests.brokerstub.support import broker, row, topic, undecoded


@pytest.fixture
def cache() -> MetadataCache:
    return MetadataCache("cluster", 1)


def tell(cache: MetadataCache, *, controller: tuple[int, int] = (1, 1), **fields: object) -> None:
    cache.take(undecoded(msgspec.convert(fields, StatesRequest, from_attributes=True)), *controller)


def rows_of(cache: ClusterView, name: str = "orders") -> list[tuple[int, int]]:
    view = cache.topic(name)
    assert view is not None
    return [(one.partition, one.leader) for one in view.partitions]


def test_before_anything_was_told_the_view_is_empty(cache: MetadataCache) -> None:
    view: ClusterView = cache
    assert (view.cluster_id, view.own_broker_id, view.controller_id, view.metadata_version) == ("cluster", 1, -1, 0)
    assert (list(view.brokers), list(view.topic_names), view.topic("orders"), list(view.topics())) == ([], [], None, [])


def test_bodies_about_a_topic_are_merged(cache: MetadataCache) -> None:
    tell(cache, topics=[topic(row(1, 1), row(0, 1))])
    assert rows_of(cache) == [(0, 1), (1, 1)]
    tell(cache, topics=[topic(row(1, 2), row(2, 3))], controller=(2, 7))
    assert rows_of(cache) == [(0, 1), (1, 2), (2, 3)]
    assert (cache.controller_id, cache.controller_epoch, cache.metadata_version) == (2, 7, 2)


def test_leader_minus_2_removes_a_partition_and_with_the_last_one_the_topic(cache: MetadataCache) -> None:
    tell(cache, topics=[topic(row(0), row(1))])
    tell(cache, topics=[topic(row(0, -2))])
    assert rows_of(cache) == [(1, 1)]
    tell(cache, topics=[topic(row(1, -2))])
    assert (list(cache.topic_names), cache.topic("orders")) == ([], None)


def test_removals_in_the_first_body_about_a_topic_leave_no_trace(cache: MetadataCache) -> None:
    tell(cache, topics=[topic(row(0, -2)), topic(row(0, -2), row(1, 3), name="paid", topic_id="id-paid")])
    assert list(cache.topic_names) == ["paid"]
    assert rows_of(cache, "paid") == [(1, 3)]


def test_another_topic_id_replaces_the_topic(cache: MetadataCache) -> None:
    tell(cache, topics=[topic(row(0, 1), row(1, 1))])
    tell(cache, topics=[topic(row(0, 2), topic_id="new")])
    assert [(view.topic_id, len(view.partitions)) for view in cache.topics()] == [("new", 1)]


def test_removals_of_an_old_topic_id_do_not_touch_the_topic_that_has_the_name_now(cache: MetadataCache) -> None:
    tell(cache, topics=[topic(row(0, 2), topic_id="new")])
    tell(cache, topics=[topic(row(0, -2), topic_id="old")])
    assert rows_of(cache) == [(0, 2)]


def test_a_full_list_takes_effect_with_its_last_part(cache: MetadataCache) -> None:
    tell(cache, topics=[topic(row(), name="gone", topic_id="id-gone")], brokers=[broker(1)])
    tell(cache, full=True, part=1, parts=2, topics=[topic(row(0))], brokers=[broker(2)])
    assert (list(cache.topic_names), [one.id for one in cache.brokers]) == (["gone"], [1])
    tell(cache, full=True, part=2, parts=2, topics=[topic(row(1))])
    assert (list(cache.topic_names), [one.id for one in cache.brokers]) == (["orders"], [2])
    assert rows_of(cache) == [(0, 1), (1, 1)]


def test_a_part_that_comes_twice_changes_nothing(cache: MetadataCache) -> None:
    for part in (1, 1, 2, 2):
        tell(cache, full=True, part=part, parts=2, topics=[topic(row(part))])
    assert rows_of(cache) == [(1, 1), (2, 1)]


def states_of(cache: MetadataCache) -> list[tuple[int, int, int]]:
    view = cache.topic("orders")
    assert view is not None
    return [(one.partition, one.leader_epoch, one.version) for one in view.partitions]


def test_a_row_is_never_taken_back_to_an_older_leader_epoch_or_version(cache: MetadataCache) -> None:
    """S29; after KAFKA-9212."""
    tell(cache, topics=[topic(row(0, epoch=3, version=7), row(1, epoch=3, version=7), row(2, epoch=3, version=7))])
    tell(cache, topics=[topic(row(0, epoch=2, version=9), row(1, epoch=3, version=6), row(2, epoch=4, version=0))])
    assert states_of(cache) == [(0, 3, 7), (1, 3, 7), (2, 4, 0)]


def test_a_full_list_that_comes_late_takes_no_row_back(cache: MetadataCache) -> None:
    late = [topic(row(0, epoch=1)), topic(row(0, epoch=1), name="anew", topic_id="old")]
    tell(cache, full=True, topics=late)
    tell(cache, topics=[topic(row(0, epoch=2))])
    tell(cache, full=True, topics=late)
    assert states_of(cache) == [(0, 2, 0)]


def test_a_topic_made_anew_begins_at_its_own_epochs(cache: MetadataCache) -> None:
    tell(cache, topics=[topic(row(0, epoch=5))])
    tell(cache, topics=[topic(row(0, epoch=0), topic_id="new")])
    assert states_of(cache) == [(0, 0, 0)]


def test_the_list_of_a_later_controller_is_believed_as_it_is(cache: MetadataCache) -> None:
    tell(cache, full=True, topics=[topic(row(0, epoch=5), row(1))])
    tell(cache, full=True, topics=[topic(row(0, epoch=6))], controller=(2, 2))
    assert states_of(cache) == [(0, 6, 0)]


def test_an_unfinished_list_is_dropped_at_part_1_of_another(cache: MetadataCache) -> None:
    tell(cache, full=True, part=1, parts=3, topics=[topic(row(0))])
    tell(cache, full=True, part=2, parts=3, topics=[topic(row(1))])
    tell(cache, full=True, part=1, parts=2, topics=[topic(row(5))])
    tell(cache, full=True, part=2, parts=2, topics=[topic(row(6))])
    assert rows_of(cache) == [(5, 1), (6, 1)]


def test_an_unfinished_list_is_dropped_at_a_higher_controller_epoch(cache: MetadataCache) -> None:
    tell(cache, full=True, part=1, parts=2, topics=[topic(row(0))])
    with pytest.raises(OutOfOrderError, match="part 2 of 2 after 0"):
        tell(cache, full=True, part=2, parts=2, topics=[topic(row(1))], controller=(2, 2))
    assert list(cache.topic_names) == []


@pytest.mark.parametrize(("part", "parts"), [(0, 2), (2, 2), (3, 2), (-1, 1)])
def test_a_part_without_its_predecessors_is_refused(cache: MetadataCache, part: int, parts: int) -> None:
    with pytest.raises(OutOfOrderError):
        tell(cache, full=True, part=part, parts=parts)


def test_brokers_are_replaced_as_a_whole_and_kept_when_none_are_told(cache: MetadataCache) -> None:
    tell(cache, brokers=[broker(3), broker(1)])
    tell(cache, topics=[topic(row())])
    assert [one.id for one in cache.brokers] == [1, 3]
    tell(cache, brokers=[broker(2)])
    assert [one.id for one in cache.brokers] == [2]


def test_an_address_is_that_of_a_broker_that_is_not_gone(cache: MetadataCache) -> None:
    tell(cache, brokers=[broker(1, port=9001), broker(2, state="gone"), broker(3, state="draining", port=9003)])
    assert [cache.address_of(broker_id) for broker_id in (1, 2, 3, 4)] == [
        "http://127.0.0.1:9001",
        None,
        "http://127.0.0.1:9003",
        None,
    ]


def test_topics_come_in_the_order_of_their_names_also_when_one_goes_meanwhile(cache: MetadataCache) -> None:
    tell(cache, topics=[topic(row(), name=name, topic_id=f"id-{name}") for name in ("c", "a", "b")])
    views = cache.topics()
    assert next(views).topic == "a"
    tell(cache, topics=[topic(row(0, -2), name="b", topic_id="id-b")])
    assert [view.topic for view in views] == ["c"]
