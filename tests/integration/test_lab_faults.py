"""Faults inside a broker, as the lab sets them: disks and held partitions, in a file that the broker watches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from brokerstub.faults import NO_FAULTS, Faults, read_faults
from tests.lab_support import LabProcess, address_of, listening


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabProcess]:
    with (
        listening() as zookeeper,
        LabProcess(tmp_path_factory.mktemp("lab") / "var", "--zookeeper", address_of(zookeeper), brokers=1) as lab,
    ):
        yield lab.started()
        assert lab.end() == 0


def faults_of(lab: LabProcess) -> Faults:
    return read_faults(lab.var / "broker-1" / "faults.json")


def broken(*indexes: int) -> Faults:
    return Faults(frozenset(indexes))


def test_a_broker_has_two_log_directories_and_is_told_where_its_faults_are(lab: LabProcess) -> None:
    folder = lab.var / "broker-1"
    lines = (folder / "server.properties").read_text().splitlines()
    assert f"log.dirs={folder},{folder / 'disk-1'}" in lines
    assert f"klamm.faults.file={folder / 'faults.json'}" in lines


def test_disks_break_one_after_the_other_and_are_mended_together(lab: LabProcess) -> None:
    for verb, more, changed, faults in [
        ("break-disk", {}, True, broken(0)),
        ("break-disk", {"dir": 0}, False, broken(0)),
        ("break-disk", {}, True, broken(0, 1)),
        ("break-disk", {}, False, broken(0, 1)),
        ("mend-disk", {"dir": 1}, True, broken(0)),
        ("mend-disk", {}, True, NO_FAULTS),
        ("mend-disk", {}, False, NO_FAULTS),
    ]:
        done = lab.order(verb, 1, **more)
        assert (done["changed"], faults_of(lab)) == (changed, faults)
        assert done["broken_dirs"] == sorted(faults.broken_dirs)


def test_a_disk_of_a_broker_that_does_not_run_can_be_broken_and_stays_so(lab: LabProcess) -> None:
    lab.order("kill")
    lab.order("break-disk", 1, dir=1)
    lab.order("start")
    assert faults_of(lab) == broken(1)
    lab.order("mend-disk")


def test_partitions_are_held_and_released_beside_other_faults(lab: LabProcess) -> None:
    lab.order("break-disk", 1, dir=1)
    for number in (0, 1):
        assert lab.ask("hold", {"broker": 1, "topic": "orders", "partition": number})[1]["changed"]
    assert not lab.ask("hold", {"broker": 1, "topic": "orders", "partition": 0})[1]["changed"]
    lab.ask("release", {"broker": 1, "topic": "orders", "partition": 0})
    assert faults_of(lab) == Faults(frozenset({1}), frozenset({("orders", 1)}))
    lab.ask("release", {"broker": 1, "topic": "orders", "partition": 1})
    lab.order("mend-disk")
    assert faults_of(lab) == NO_FAULTS


@pytest.mark.parametrize(
    ("verb", "more"),
    [
        ("break-disk", {"dir": 2}),
        ("break-disk", {"dir": -1}),
        ("mend-disk", {"dir": 2}),
        ("kill", {"dir": 0}),
        ("break-disk", {"topic": "orders", "partition": 0}),
        ("hold", {}),
        ("hold", {"topic": "orders"}),
        ("release", {"partition": 0}),
    ],
)
def test_faults_that_make_no_sense_are_refused(lab: LabProcess, verb: str, more: dict[str, object]) -> None:
    status, problem = lab.ask(verb, {"broker": 1, **more})
    assert (status in (400, 409), problem["code"], faults_of(lab)) == (True, "INVALID_REQUEST", NO_FAULTS)
