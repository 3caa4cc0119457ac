"""From a date as printed to milliseconds since 1970. Local times of the hour that occurs twice are taken as the first.

A text that is no moment (a 31st of February, an hour 25) gives None. So does a moment that no cluster can have seen: a
single damaged year would stretch the tables by day over thousands of years. Pure.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

FIRST_MS: Final = 1_293_840_000_000  # 2011, when Kafka was published
LAST_MS: Final = 4_102_444_800_000  # 2100
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000

_MONTHS = {
    **{"Jan": "01", "Feb": "02", "Mar": "03", "Apr": "04", "May": "05", "Jun": "06"},
    **{"Jul": "07", "Aug": "08", "Sep": "09", "Oct": "10", "Nov": "11", "Dec": "12"},
}


def millis_of(text: str, zone: str) -> int | None:
    """`text` is one of the dates that a layout lets through."""
    if len(text) == 23 and text[19] in ".,":  # with milliseconds and without a zone: nearly all lines
        second = _second_of(text[:19], zone)
        return None if second is None else second + int(text[20:])
    if len(text) == 13 and text.isdigit():
        return in_reach(int(text))
    if text[2] == " ":  # 18 Nov 2026 07:08:36,816
        text = f"{text[7:11]}-{_MONTHS.get(text[3:6], '00')}-{text[:2]} {text[12:]}"
    minute = minute_of(text[:16], zone if len(text) <= 19 or _is_local(text) else text[19:].lstrip(".,0123456789 "))
    seconds = int(text[17:19])
    if minute is None or seconds > 59:
        return None
    millis = int(text[20:23]) if len(text) >= 23 and text[19] in ".," else 0
    return minute + seconds * 1_000 + millis


def _is_local(text: str) -> bool:
    return text[-1] != "Z" and "+" not in text[19:] and "-" not in text[19:]


@lru_cache(maxsize=4_096)
def _second_of(text: str, zone: str) -> int | None:
    minute, seconds = minute_of(text[:16], zone), int(text[17:19])
    return None if minute is None or seconds > 59 else minute + seconds * 1_000


@lru_cache(maxsize=65_536)
def minute_of(text: str, zone: str) -> int | None:
    digits = (text[:4], text[5:7], text[8:10], text[11:13], text[14:16])
    try:
        local = datetime(*(int(part) for part in digits))  # type: ignore[arg-type]
        if zone in ("UTC", "Z"):
            aware = local.replace(tzinfo=UTC)
        elif zone[0] in "+-":
            aware = datetime.fromisoformat(f"{local.isoformat()}{zone[:3]}:{zone[-2:]}")
        else:
            aware = local.replace(tzinfo=ZoneInfo(zone))
    except ValueError:
        return None
    return in_reach(int(aware.timestamp()) * 1_000)


def in_reach(millis: int) -> int | None:
    """Returns None for a moment that no cluster can have seen."""
    return millis if FIRST_MS <= millis < LAST_MS else None


@lru_cache(maxsize=4_096)
def day_of(day_number: int) -> str:
    """Returns the date of a day counted from 1970."""
    return datetime.fromtimestamp(day_number * 86_400, UTC).strftime("%Y-%m-%d")
