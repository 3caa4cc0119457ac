"""The data directory: one process at a time, and a session that outlives it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from brokerstub.identity import DataDirectory, DirectoryLockedError, SavedSession
from controller.base.files import write_atomically

HOLDER = """
import sys
from pathlib import Path
from brokerstub.identity import DataDirectory
directory = DataDirectory(Path(sys.argv[1]))
sys.stdout.write("locked\\n")
sys.stdout.flush()
sys.stdin.read()
"""


def test_the_lock_names_the_process_that_has_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "broker-1")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(DirectoryLockedError) as refused:
            DataDirectory(tmp_path / "broker-1")
        assert refused.value.owner == str(holder.pid)
        assert str(holder.pid) in str(refused.value)
        holder.kill()
    directory = DataDirectory(tmp_path / "broker-1")
    assert (tmp_path / "broker-1" / ".lock").read_text() == f"{os.getpid()}\n"
    directory.close()
    DataDirectory(tmp_path / "broker-1").close()


def test_a_saved_session_is_found_again_and_private(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    assert directory.earlier_session() is None
    directory.save_session(0x1000_0000_0000_0001, b"\x00\xffsecret")
    directory.save_session(-5, b"\x00\xffnewer")
    assert directory.earlier_session() == SavedSession(-5, b"\x00\xffnewer")
    assert (tmp_path / "session").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "session"]
    assert "newer" not in repr(directory.earlier_session())
    directory.close()


def test_a_session_file_that_makes_no_sense_is_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / "session").write_text("{")
    directory = DataDirectory(tmp_path)
    assert directory.earlier_session() is None
    directory.close()


def test_a_file_half_written_in_a_crash_is_neither_read_nor_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "session.part").write_bytes(b"half")
    (tmp_path / "session.part").chmod(0o666)
    write_atomically(tmp_path / "session", b"whole")
    assert (tmp_path / "session").read_bytes() == b"whole"
    assert (tmp_path / "session").stat().st_mode & 0o777 == 0o600
