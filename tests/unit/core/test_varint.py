"""Varints are those of Beam's coders."""

import pytest
from apache_beam.coders import VarIntCoder
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.core.varint import coded_varint, read_varint


@given(st.integers(0, (1 << 63) - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_they_are_beams(number: int, before: bytes, after: bytes) -> None:
    coded = coded_varint(number)
    assert coded == VarIntCoder().encode(number)
    assert read_varint(before + coded + after, len(before)) == (number, len(before + coded))


def test_negative_numbers_are_read_as_64_bits() -> None:
    assert read_varint(VarIntCoder().encode(-1), 0) == ((1 << 64) - 1, 10)


@pytest.mark.parametrize(
    "coded", [b"", b"\x80", b"\xff\xff", b"\x80" * 11, b"\x80" * 10 + b"\1", b"\xff" * 9 + b"\2"]
)
def test_what_is_cut_off_or_too_long_is_refused(coded: bytes) -> None:
    with pytest.raises(ValueError, match="cut off, or has more than 64 bits"):
        read_varint(coded, 0)
