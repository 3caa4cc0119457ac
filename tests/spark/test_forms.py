"""Lines put together by their forms are exactly those of the form; their digits are those of each line by itself."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from sparkjobs.engine.local.forms import (
    FEW,
    Digits,
    Forms,
    Lines,
    alike,
    mark_of,
    moments_of,
    words_alike,
)
from sparkjobs.input.files import Zones, survey
from sparkjobs.parse.lines import LineReader
from sparkjobs.parse.templates import ALIKE, template_for
from sparkjobs.parse.timestamps import millis_of
from sparkjobs.tables.silver import BronzeFile
from tests.spark.test_local_ingest import LINE, OFFLINE


def file_of(folder: Path) -> BronzeFile:
    (folder / "state-change.log").write_text(LINE * 3)
    [file] = survey([str(folder / "state-change.log")], "c", Zones())
    return file


def drawn(draw: random.Random) -> list[bytes]:
    """Of few and many forms: some differ in a late letter, some are damaged, short or empty."""
    lines = []
    for _ in range(draw.randrange(200, 900)):
        line = (
            draw.choice((LINE, OFFLINE)).rstrip("\n").replace("a-7", f"{draw.choice('abcdefgh')}-{draw.randrange(30)}")
        )
        line = line.replace("10,504", f"{draw.randrange(60):02},{draw.randrange(1_000):03}")
        if draw.random() < 0.1:
            place = draw.randrange(len(line))
            line = line[:place] + draw.choice("x7 \u00e9") + line[place + 1 :]
        lines.append(draw.choice((line, line, line, line[: draw.randrange(12)], "\tat a.b(C.java:1)", "")).encode())
    return lines


@pytest.mark.parametrize("seed", range(20))
def test_each_line_is_put_to_its_own_form_and_to_no_other(seed: int, tmp_path: Path) -> None:
    lines = drawn(random.Random(seed))
    forms, seen = Forms(LineReader(file_of(tmp_path))), list[int]()
    times = Counter(line.translate(ALIKE) for line in lines)
    for _ in range(2):  # by learned forms as well
        seen.clear()
        for code, places, rows in forms.sort(Lines(b"\n".join(lines) + b"\n")):
            seen += places.tolist()
            assert places.tolist() == sorted(places.tolist())
            if code >= 0:
                assert [row.tobytes() for row in rows] == [lines[place] for place in places.tolist()]
                for place in places.tolist():
                    assert template_for(forms.reader, lines[place].decode()) == forms.templates[code]
                assert len({lines[place].translate(ALIKE) for place in places.tolist()}) == 1
        assert sorted(seen) == list(range(len(lines)))
    often = {form for form, count in times.items() if count >= FEW and len(form) >= 8}
    assert len(forms.templates) == sum(
        template_for(forms.reader, form.decode("utf-8", "replace")) is not None for form in often
    )


def test_all_digits_are_made_alike_and_nothing_else() -> None:
    content = random.Random(1).randbytes(8_000) + bytes(range(256))
    assert alike(np.frombuffer(content, np.uint8)).tobytes() == content.translate(ALIKE)
    assert words_alike(np.frombuffer(content, "<u8")).tobytes() == content.translate(ALIKE)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_numbers_moments_and_marks_equal_those_of_each_line_by_itself(zone: str, tmp_path: Path) -> None:
    draw = random.Random(3)
    lines = [line for line in drawn(draw) if line.startswith(b"[")]
    forms = Forms(LineReader(file_of(tmp_path)))
    content = Lines(b"\n".join(lines) + b"\n")
    found = 0
    for code, places, rows in forms.sort(content):
        template = forms.templates[code]
        if code < 0 or template.fate is not None:
            continue
        digits = Digits(forms.places[code], rows)
        own = [lines[place] for place in places.tolist()]
        moments = [line[template.ts : template.ts + 23].decode() for line in own]
        assert moments_of(digits, zone, moments[0]).tolist() == [millis_of(moment, zone) for moment in moments]
        for span in template.numbers.values():
            assert digits.number(span).tolist() == [int(line[slice(*span)]) for line in own]
        said = [line[slice(*template.message)] for line in own]
        assert digits.marks().tolist() == [mark_of(moment, one) for moment, one in zip(moments, said, strict=True)]
        found += len(own)
    assert found > 50
