"""Each `*.txt` here is a story: commands, a line of dashes, and the transcript of all that followed from them.

`KLAMM_REWRITE=1 pytest tests/scenarios` writes the transcripts anew; a person reads the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.scenarios import commands_duties, commands_reassignment
from tests.scenarios.story import Story

HERE = Path(__file__).parent
STORIES = sorted(HERE.glob("*.txt"))
DASHES = "-" * 72
#: they teach `Story` their lines by being imported
LANGUAGE = (commands_duties, commands_reassignment)
IS_REWRITING = os.environ.get("KLAMM_REWRITE") == "1"


def transcript_of(script: str) -> str:
    story = Story()
    for line in script.splitlines():
        if line.strip() and not line.startswith("#"):
            story.tell(line.strip())
    return "\n".join(story.transcript).strip()


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_story_goes_as_it_is_written(path: Path) -> None:
    script, _, expected = path.read_text(encoding="utf-8").partition(DASHES)
    happened = transcript_of(script)
    if IS_REWRITING:
        path.write_text(f"{script.strip()}\n\n{DASHES}\n\n{happened}\n", encoding="utf-8")
    else:
        assert happened.splitlines() == expected.strip().splitlines()


def test_there_are_stories() -> None:
    assert len(STORIES) >= 12


def test_a_command_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no command: kil 1"):
        transcript_of("brokers 1\nkil 1")
