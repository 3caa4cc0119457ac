"""Elections: Kafka's PartitionLeaderElectionAlgorithmsTest as far as it applies, and decisions made in one write."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.elections import first_leadership, is_unclean, is_undisturbed, repaired, status_of, with_isr
from controller.core.model import NO_LEADER, RECOVERED, RECOVERING, Leadership
from tests.builders import EPOCH, a_leadership

REPLICAS = (2, 4)  # Kafka's own tests use this assignment


def repair(
    state: Leadership, online: Sequence[int], replicas: Sequence[int] = REPLICAS, *, unclean: bool = False
) -> Leadership | None:
    return repaired(tuple(replicas), state, frozenset(online), EPOCH, allow_unclean=unclean)


def bounce(state: Leadership, online: Sequence[int], returning: Sequence[int], *, unclean: bool = False) -> Leadership:
    decided = repaired(
        (1, 2, 3), state, frozenset(online), EPOCH, returning=frozenset(returning), allow_unclean=unclean
    )
    return state if decided is None else decided


def test_a_new_partition_is_led_by_the_first_online_replica_and_all_online_are_in_sync() -> None:
    assert first_leadership((2, 4, 6), frozenset({6, 4}), EPOCH) == a_leadership(4, [4, 6], 0)


def test_a_new_partition_without_an_online_replica_waits() -> None:
    assert first_leadership((2, 4), frozenset({5}), EPOCH) is None


def test_a_replica_being_added_leads_first_only_where_no_other_is_assigned() -> None:
    first = a_leadership(4, [4], 0)
    assert first_leadership((2, 4), frozenset({2, 4}), EPOCH, adding=(2,)) == first
    assert first_leadership((2, 4), frozenset({2}), EPOCH, adding=(2,)) is None, "it is empty, and 4 may hold data"
    assert first_leadership((2, 4), frozenset({2, 4}), EPOCH, adding=(2, 4)) == a_leadership(2, [2, 4], 0)


def test_offline_partition_elects_the_online_member_of_the_isr() -> None:
    assert repair(a_leadership(2, [2, 4], 5), [4]) == a_leadership(4, [4], 6)


def test_last_isr_offline_and_unclean_off_elects_no_leader_and_keeps_the_isr() -> None:
    assert repair(a_leadership(2, [2], 5), [4]) == a_leadership(NO_LEADER, [2], 6)


def test_last_isr_offline_and_unclean_on_elects_an_online_replica_alone_and_recovering() -> None:
    decided = repair(a_leadership(2, [2], 5), [4], unclean=True)
    assert decided == a_leadership(4, [4], 6, recovery=RECOVERING)
    assert is_unclean(a_leadership(2, [2], 5), decided)


def test_a_replica_being_added_never_leads_before_it_is_in_sync_not_even_uncleanly() -> None:
    state = a_leadership(NO_LEADER, [1], 5)
    decided = repaired((4, 1, 2), state, frozenset({2, 4}), EPOCH, adding=(4,), allow_unclean=True)
    assert decided == a_leadership(2, [2], 6, recovery=RECOVERING)
    assert repaired((4, 1), state, frozenset({4}), EPOCH, adding=(4,), allow_unclean=True) is None
    in_sync = a_leadership(1, [1, 4], 5)
    assert repaired((4, 1), in_sync, frozenset({4}), EPOCH, adding=(4,)) == a_leadership(4, [4], 6)


def test_unclean_is_not_chosen_while_a_member_of_the_isr_is_online() -> None:
    decided = repair(a_leadership(4, [4, 6], 5), [2, 6], [2, 4, 6], unclean=True)
    assert decided == a_leadership(6, [6], 6)
    assert not is_unclean(a_leadership(4, [4, 6], 5), decided)


def test_assignment_order_decides_and_the_isr_keeps_its_own_order() -> None:
    assert repair(a_leadership(9, [9, 3, 2, 1], 0), [1, 2, 3], [1, 2, 3, 9]) == a_leadership(1, [3, 2, 1], 1)


def test_a_follower_that_goes_leaves_the_isr_and_the_leader_stays() -> None:
    assert repair(a_leadership(2, [4, 2], 3), [2]) == a_leadership(2, [2], 4)


def test_nothing_is_decided_when_nothing_changes() -> None:
    assert repair(a_leadership(2, [2, 4]), [2, 4]) is None
    assert repair(a_leadership(2, [2]), [2]) is None
    assert repair(a_leadership(NO_LEADER, [2]), [4]) is None


def test_the_isr_is_kept_when_its_last_members_vanish_together() -> None:
    assert repair(a_leadership(2, [2, 4], 1), []) == a_leadership(NO_LEADER, [2, 4], 2)


def test_any_of_the_members_that_vanished_together_may_lead_again() -> None:
    assert repair(a_leadership(NO_LEADER, [2, 4], 2), [4]) == a_leadership(4, [4], 3)


def test_a_leader_outside_the_isr_is_replaced() -> None:
    assert repair(a_leadership(4, [2], 0), [2, 4]) == a_leadership(2, [2], 1)


def test_an_isr_member_outside_the_assignment_is_dropped() -> None:
    assert repair(a_leadership(2, [2, 9], 0), [2, 4, 9]) == a_leadership(2, [2], 1)


def test_recovery_is_kept_by_a_clean_election() -> None:
    state = a_leadership(2, [2, 4], 0, recovery=RECOVERING)
    assert repair(state, [4]) == a_leadership(4, [4], 1, recovery=RECOVERING)


def test_a_bounced_leader_gives_way_to_a_steady_member() -> None:
    assert bounce(a_leadership(1, [1, 2, 3], 4), [1, 2, 3], [1]) == a_leadership(2, [2, 3], 5)


def test_a_bounced_follower_leaves_the_isr() -> None:
    assert bounce(a_leadership(1, [1, 2, 3], 4), [1, 2, 3], [3]) == a_leadership(1, [1, 2], 5)


@pytest.mark.parametrize("isr", [[1], [1, 2]])
def test_a_bounced_isr_leads_again_with_a_higher_leader_epoch(isr: list[int]) -> None:
    decided = bounce(a_leadership(1, isr, 4), [1, 2, 3], isr)
    assert (decided.leader, decided.isr, decided.leader_epoch) == (1, tuple(isr), 5)


def test_a_bounced_leader_waits_for_no_follower_when_it_had_none_before() -> None:
    assert bounce(a_leadership(NO_LEADER, [1], 4), [1, 2, 3], [1]) == a_leadership(1, [1], 5)


def test_a_bounced_sole_member_is_preferred_to_an_unclean_choice() -> None:
    decided = bounce(a_leadership(1, [1], 4), [1, 2, 3], [1], unclean=True)
    assert (decided.leader, decided.isr, decided.recovery) == (1, (1,), RECOVERED)


def test_an_unclean_choice_is_still_made_when_another_broker_bounced() -> None:
    assert bounce(a_leadership(1, [1], 4), [2, 3], [3], unclean=True) == a_leadership(2, [2], 5, recovery=RECOVERING)


def test_an_isr_that_the_leader_asked_for_keeps_leader_and_leader_epoch() -> None:
    assert with_isr(a_leadership(2, [2], 5, controller_epoch=1), (2, 4), RECOVERED, EPOCH) == a_leadership(2, [2, 4], 5)


ids = st.integers(0, 5)


@st.composite
def situations(draw: st.DrawFn) -> tuple[tuple[int, ...], Leadership, frozenset[int], frozenset[int]]:
    replicas = tuple(draw(st.lists(ids, min_size=1, max_size=4, unique=True)))
    isr = tuple(draw(st.lists(st.sampled_from(replicas), min_size=1, unique=True)))
    leader = draw(st.sampled_from((NO_LEADER, *isr)))
    online = draw(st.frozensets(ids))
    returning = draw(st.frozensets(ids)) & online
    return replicas, a_leadership(leader, isr, draw(st.integers(0, 9))), online, returning


@given(situations(), st.booleans(), st.frozensets(ids))
def test_every_election_is_sound(
    situation: tuple[tuple[int, ...], Leadership, frozenset[int], frozenset[int]],
    unclean: bool,
    added: frozenset[int],
) -> None:
    replicas, state, online, returning = situation
    adding = tuple(one for one in replicas if one in added)
    decided = repaired(replicas, state, online, EPOCH, returning=returning, adding=adding, allow_unclean=unclean)
    after = decided or state
    assert after.isr
    assert set(after.isr) <= set(replicas)
    assert after.leader == NO_LEADER or (after.leader in after.isr and after.leader in online)
    if set(state.isr) & online:
        assert after.leader in set(state.isr) & online
    if set(after.isr) - set(state.isr):
        assert unclean
        assert after.recovery == RECOVERING
        assert after.leader not in adding
    if decided is not None:
        assert decided.leader_epoch == state.leader_epoch + 1
        assert repaired(replicas, decided, online, EPOCH, adding=adding, allow_unclean=unclean) is None
    assert status_of(after, online).value in ("OnlinePartition", "OfflinePartition")


@given(situations(), st.booleans())
def test_partitions_passed_over_as_undisturbed_need_no_repair(
    situation: tuple[tuple[int, ...], Leadership, frozenset[int], frozenset[int]], unclean: bool
) -> None:
    replicas, state, online, _ = situation
    decided = repaired(replicas, state, online, EPOCH, allow_unclean=unclean)
    if is_undisturbed(replicas, state, online):
        assert decided is None
    elif state.leader != NO_LEADER:
        assert decided is not None or not set(state.isr) <= set(replicas)
