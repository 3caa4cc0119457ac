"""Nothing that is said of a part of the input is false: the table, and each of its lines found again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from tests.spark.subsets import LAG_MS, RECORDINGS, UNKNOWN, WRONG, Subset, is_ours, line_for, lines_in_table, subsets

#: of a broker of ours that is killed, frozen or cut off, the others see the same; its session is in ZooKeeper's record
UNTOLD: Final = {(name, "how_brokers_went") for name in RECORDINGS if is_ours(name)}
QUICK: Final = ("all", "without server", "only state-change", "INFO", "without the last third")


def lines_of(*names: str) -> list[Any]:
    return [pytest.param(name, one, id=f"{name}: {one.name}") for name in names for one in subsets(name)]


def test_the_table_has_every_cell_and_none_is_wrong() -> None:
    table = lines_in_table()
    assert list(table) == [(name, subset.name) for name in RECORDINGS for subset in subsets(name)]
    cells = [(*key, question, cell) for key, line in table.items() for question, cell in line.cells.items()]
    assert len(cells) > 1_000
    assert [one for one in cells if one[-1].grade == WRONG] == []


def test_with_all_logs_everything_is_known_that_a_line_can_tell() -> None:
    unknown = {
        (name, question)
        for (name, subset), line in lines_in_table().items()
        for question, cell in line.cells.items()
        if subset == "all" and cell.grade == UNKNOWN
    }
    assert unknown == UNTOLD


#: how much wider than the longest silence of a broker a bound may be; a line may follow its write by so much
LIMITS: Final = {"outages_lie_in_bounds": LAG_MS, "controllers_are_right": 0, "went_between": 0}


def test_with_all_logs_no_bound_is_wider_than_a_brokers_silence() -> None:
    """Where logs are missing, a bound may be as wide as the table has it, and no wider."""
    for (name, subset), line in lines_in_table().items():
        for question, cell in line.cells.items():
            assert (cell.width_ms is not None) <= (question in LIMITS)
            if subset == "all" and cell.width_ms is not None:
                assert cell.width_ms <= line.silence_ms + LIMITS[question], (name, question)


@pytest.mark.parametrize(("name", "subset"), lines_of(*(name for name in RECORDINGS if is_ours(name))))
def test_of_our_own_clusters_each_line_is_found_again(name: str, subset: Subset, tmp_path: Path) -> None:
    assert str(line_for(name, subset, tmp_path)) == str(lines_in_table()[name, subset.name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "subset"), [one for one in lines_of("kafka-3.9.1", "kafka-3.9.1-info") if one.values[1].name in QUICK]
)
def test_of_two_recordings_each_line_is_found_again(name: str, subset: Subset, tmp_path: Path) -> None:
    assert str(line_for(name, subset, tmp_path)) == str(lines_in_table()[name, subset.name])


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "subset"),
    [
        *(one for one in lines_of("kafka-3.9.1", "kafka-3.9.1-info") if one.values[1].name not in QUICK),
        *lines_of(*(name for name in RECORDINGS if name.startswith(("kafka-older", "kafka-3.9.1-del")))),
    ],
)
def test_of_any_recording_each_line_is_found_again(name: str, subset: Subset, tmp_path: Path) -> None:
    assert str(line_for(name, subset, tmp_path)) == str(lines_in_table()[name, subset.name])
