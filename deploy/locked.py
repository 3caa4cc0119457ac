"""locked.py [extra...]: the part of requirements.lock that an image wants, with its hashes, for `pip --require-hashes`.

Wanted is what pyproject.toml names (and the extras given here, and what builds the package), and what the lock says
came by it. Run in a folder with both files; nothing but Python is needed.
"""

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path


def stanzas_in(lock: str) -> dict[str, str]:
    """What the lock says of each package, by its name; of some it has a version for each Python."""
    stanzas: dict[str, str] = {}
    for one in re.finditer(r"^([\w.-]+)==.+\n(?:[ #].*\n)*", lock, re.MULTILINE):
        stanzas[one[1]] = stanzas.get(one[1], "") + one[0]
    return stanzas


def parents_in(stanza: str) -> set[str]:
    """What a package came by."""
    return {word.strip() for word in re.findall(r"^ +#(?: +via)? +(.+)$", stanza, re.MULTILINE)}


def name_of(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


def wanted(lock: str, project: dict, extras: Iterable[str]) -> str:
    """The stanzas of what is named, and of all that came by it."""
    stanzas = stanzas_in(lock)
    named = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    named += [one for extra in extras for one in project["project"]["optional-dependencies"][extra]]
    names = {name_of(one) for one in named}
    if missing := names - stanzas.keys():
        raise SystemExit(f"requirements.lock does not have {', '.join(sorted(missing))}")
    while more := {name for name, stanza in stanzas.items() if name not in names and parents_in(stanza) & names}:
        names |= more
    return "".join(stanza for name, stanza in stanzas.items() if name in names)


if __name__ == "__main__":
    sys.stdout.write(
        wanted(Path("requirements.lock").read_text(), tomllib.loads(Path("pyproject.toml").read_text()), sys.argv[1:])
    )
