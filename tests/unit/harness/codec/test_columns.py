"""Blocks of columns: what one process writes, another one reads."""

import contextlib
import struct
from typing import Any

import pytest
from apache_beam.coders import BytesCoder, FloatCoder, TupleCoder, WindowedValueCoder
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import PANE_INFO_UNKNOWN, WindowedValue, create
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.harness.codec.blocks import (
    BlockReader,
    BlockWriter,
    GroupToken,
)
from beam_spark_runner.harness.codec.columns import (
    ColumnReader,
    ColumnWriter,
    reader_for,
    writer_for,
)
from beam_spark_runner.portable.bounded import MalformedBytesError
from tests.unit.harness.codec.block_elements import (
    BYTES,
    GROUPED,
    PAIR,
    SIZED,
    elements_in,
    elements_of,
)

SHAPES = [
    (BytesCoder(), BYTES),
    (PAIR, st.tuples(BYTES, BYTES)),
    (GROUPED, st.tuples(BYTES, st.lists(BYTES, max_size=4))),
]
PLAIN = WindowedValueCoder(BytesCoder(), GlobalWindowCoder())
ORIGIN = create(None, 0, (GlobalWindow(),), PANE_INFO_UNKNOWN)


def written(coder: WindowedValueCoder, values: list[Any], origins: list[WindowedValue]) -> bytes:
    out: list[bytes] = []
    ColumnWriter(coder).write(values, origins, out)
    return b"".join(out)


def read(coder: WindowedValueCoder, block: bytes) -> list[WindowedValue]:
    return elements_in(block, ColumnReader(coder))


@given(st.lists(elements_of(SHAPES), max_size=3))
def test_what_is_written_is_read(cases: list[Any]) -> None:
    """Blocks that follow each other are one."""
    for coder, _ in cases[:1]:
        alike = [elements for other, elements in cases if str(other) == str(coder)]
        block = b"".join(
            written(coder, [each.value for each in elements], elements) for elements in alike
        )
        assert read(coder, block) == [each for elements in alike for each in elements]


def test_the_origin_of_many_elements_is_one_object() -> None:
    block = written(PLAIN, [b"x", b"yz"] * 500, [ORIGIN] * 1000)
    ((values, origins),) = ColumnReader(PLAIN).read(block)
    assert values == [b"x", b"yz"] * 500
    assert len(set(map(id, origins))) == 1
    assert len(block) < 1000 * (4 + 1.5) + 100


def test_groups_may_be_tokens_or_iterables() -> None:
    coder = WindowedValueCoder(GROUPED, GlobalWindowCoder())
    groups = [GroupToken(b"group-1"), [b"x", b""], [], iter([b"y"]), GroupToken(b"group-2")]
    block = written(coder, [(b"key", group) for group in groups], [ORIGIN] * len(groups))
    found = [element.value[1] for element in read(coder, block)]
    assert found == [b"group-1", [b"x", b""], [], [b"y"], b"group-2"]
    assert [type(group) is GroupToken for group in found] == [True, False, False, False, True]


@given(elements_of(SHAPES), st.data())
def test_what_is_cut_or_changed_is_an_error_or_something_else(case: Any, data: Any) -> None:
    coder, elements = case
    block = bytearray(written(coder, [each.value for each in elements], elements))
    for _ in range(data.draw(st.integers(1, 3))):
        if block:
            block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(block[: data.draw(st.integers(0, len(block)))])
    with contextlib.suppress(MalformedBytesError):
        assert len(read(coder, cut)) <= len(cut)


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (b"\1\0", "within the counts"),
        (struct.pack("<III", 1, 1, 100), "within an element"),
        (struct.pack("<III", 1 << 31, 1, 4), "within an element"),
        (struct.pack("<III", 0, 0, 0), "0 elements have 0 headers"),
        (struct.pack("<IIII", 0, 1, 4, 0), "0 elements have 1 headers"),
        (struct.pack("<IIIIIII", 2, 3, 20, *[0] * 4) + bytes(4), "2 elements have 3 headers"),
        (struct.pack("<IIIII", 1, 1, 9, 0, 2) + b"x", "not those of their bytes"),
        (struct.pack("<IIIII", 1, 1, 9, 0, 1) + b"x", "within a header"),
    ],
)
def test_errors(block: bytes, problem: str) -> None:
    with pytest.raises(MalformedBytesError, match=problem):
        read(PLAIN, block)


def test_a_header_with_something_behind_it() -> None:
    out: list[bytes] = []
    BlockWriter(PLAIN).write([b""], [ORIGIN], out)
    header = out[0] + b"\0"
    lengths = struct.pack("<II", len(header), 0)
    block = struct.pack("<III", 1, 1, len(lengths + header)) + lengths + header
    with pytest.raises(MalformedBytesError, match="longer than what it says"):
        read(PLAIN, block)


@pytest.mark.parametrize("coder", [SIZED, TupleCoder([BytesCoder(), FloatCoder()])], ids=str)
def test_other_values_are_rows(coder: Any) -> None:
    windowed = WindowedValueCoder(coder, GlobalWindowCoder())
    assert type(writer_for(windowed)) is BlockWriter
    assert type(reader_for(windowed)) is BlockReader
