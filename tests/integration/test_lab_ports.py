"""Ports for servers: each is given out once, whichever processes run beside the caller."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from brokerstub.lab.ports import END, FIRST, HOST, RANGE, NoPortsError, free_port, free_ports, is_free

ASKED = "from brokerstub.lab.ports import free_port; print(free_port(), flush=True); input()"


def neighbour() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", ASKED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def port_given_to(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def test_processes_side_by_side_have_ranges_apart() -> None:
    here = free_port()
    with neighbour() as first, neighbour() as second:
        ports = {port_given_to(first), port_given_to(second)}
        first.kill()
        second.kill()
    assert len({(port - FIRST) // RANGE for port in {here, *ports}}) == 3


def test_a_port_comes_again_only_after_all_others() -> None:
    given = [free_port() for _ in range(RANGE // 2)]
    assert len(set(given)) == len(given)


def test_ports_in_a_row_leave_out_those_in_use() -> None:
    with socket.create_server((HOST, free_port() + 2)) as busy:
        base = free_ports(4)
        assert busy.getsockname()[1] not in range(base, base + 4)
        assert all(map(is_free, range(base, base + 4)))


def test_more_in_a_row_than_a_range_has_is_refused() -> None:
    with pytest.raises(NoPortsError, match="no 300 free ports in a row"):
        free_ports(RANGE)


@pytest.mark.skipif(not Path("/proc/sys/net/ipv4/ip_local_port_range").exists(), reason="only Linux says its range")
def test_no_outgoing_connection_takes_one_of_them() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert lowest >= END
