"""`klamm what-if kill` says what then happens: three drawn cases on a real cluster of each kind. `make what-if` draws
more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real_brokers.what_if import KINDS, Kind, Player, a_subject, line_of, outcome_for, states_in

pytestmark = [pytest.mark.java, pytest.mark.maven, pytest.mark.long, pytest.mark.asyncio]

CASES = 3
SEED = 2


@pytest.mark.parametrize("kind", KINDS)
async def test_a_cluster_comes_to_what_was_predicted(kind: Kind, tmp_path: Path) -> None:
    async with a_subject(kind, tmp_path) as subject:
        player = Player(subject, SEED)
        for _ in range(CASES):
            told = await player.next()
            assert not told.differences, line_of(told)


async def test_the_truth_is_read_from_the_words_of_kafkas_tool() -> None:
    text = "\tTopic: a\tPartition: 0\tLeader: none\tReplicas: 3,1\tIsr: \tElr: 3\tLastKnownElr: 1\n"
    text += "\tTopic: b\tPartition: 7\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: N/A\tLastKnownElr: N/A\n"
    assert states_in(text) == {
        ("a", 0): (-1, frozenset(), {3}, (3, 1)),
        ("b", 7): (1, {1}, frozenset(), (1,)),
    }


async def test_one_outcome_is_named_by_an_order_of_deaths() -> None:
    outcomes = [{"orders": [[1, 2, 3], [2, 1, 3]], "state": "a"}, {"orders": [[3, 1, 2]], "state": "b"}]
    assert outcome_for(outcomes, [9, 2, 1, 3])["state"] == "a"
    assert outcome_for(outcomes, [3, 9, 1, 2])["state"] == "b"
    with pytest.raises(ValueError, match="not enough"):
        outcome_for(outcomes, [3, 2, 1])
