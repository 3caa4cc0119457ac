"""Kafka's files of offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerstub.log_dirs import DamagedCheckpointError, decode_offsets, encode_offsets

TOPICS = st.text("abc._-", min_size=1, max_size=8)


def test_the_file_is_kafkas() -> None:
    said = b"0\n2\norders 0 17\norders 1 0\n"
    assert encode_offsets({("orders", 1): 0, ("orders", 0): 17}) == said
    assert decode_offsets(said) == {("orders", 0): 17, ("orders", 1): 0}


@given(st.dictionaries(st.tuples(TOPICS, st.integers(0, 1 << 30)), st.integers(0, (1 << 63) - 1)))
def test_written_offsets_are_read(offsets: dict[tuple[str, int], int]) -> None:
    assert decode_offsets(encode_offsets(offsets)) == offsets


@pytest.mark.parametrize(
    "data", [b"", b"0\n", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 -1\n", b"\xff\n0\n"]
)
def test_a_damaged_file_is_refused_with_a_remedy(data: bytes) -> None:
    with pytest.raises(DamagedCheckpointError, match="remove the file"):
        decode_offsets(data)
