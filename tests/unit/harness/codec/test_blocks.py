"""Blocks of elements: what Beam's coders write and read, and nothing else."""

import struct
from typing import Any

import pytest
from apache_beam.coders import (
    BytesCoder,
    WindowedValueCoder,
)
from apache_beam.coders.coder_impl import create_OutputStream
from apache_beam.coders.coders import GlobalWindowCoder, IntervalWindowCoder
from apache_beam.transforms.trigger import _UnwindowedValues
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils.windowed_value import (
    PANE_INFO_UNKNOWN,
    WindowedValue,
    create,
)
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.harness.codec.blocks import BlockReader, BlockWriter, HeaderReader
from beam_spark_runner.portable.bounded import MalformedBytesError
from tests.unit.harness.codec.block_elements import (
    BYTES,
    GROUPED,
    SHAPES,
    WINDOWS,
    elements_in,
    elements_of,
)


def as_beam_writes(coder: WindowedValueCoder, elements: list[WindowedValue]) -> bytes:
    stream = create_OutputStream()
    for element in elements:
        coder.get_impl().encode_to_stream(element, stream, True)
    return bytes(stream.get())


def written(coder: WindowedValueCoder, elements: list[WindowedValue]) -> bytes:
    out: list[bytes] = []
    BlockWriter(coder).write([element.value for element in elements], elements, out)
    return b"".join(out)


def read(coder: WindowedValueCoder, block: bytes) -> list[WindowedValue]:
    return elements_in(block, BlockReader(coder))


@given(elements_of(SHAPES))
def test_what_beam_writes_is_read_as_it_was(
    case: tuple[WindowedValueCoder, list[WindowedValue]],
) -> None:
    coder, elements = case
    assert read(coder, as_beam_writes(coder, elements)) == elements


@given(elements_of([*SHAPES, (GROUPED, st.tuples(BYTES, st.lists(BYTES, max_size=4)))]))
def test_what_is_written_is_what_beam_writes(
    case: tuple[WindowedValueCoder, list[WindowedValue]],
) -> None:
    coder, elements = case
    assert written(coder, elements) == as_beam_writes(coder, elements)


def test_the_values_of_a_trigger_have_no_length() -> None:
    coder = WindowedValueCoder(GROUPED, GlobalWindowCoder())
    origin = create(None, 0, (GlobalWindow(),), PANE_INFO_UNKNOWN)
    values = _UnwindowedValues([origin.with_value(each) for each in (b"x", b"yz")])
    block = written(coder, [origin.with_value((b"key", values))])
    assert block == as_beam_writes(coder, [origin.with_value((b"key", [b"x", b"yz"]))])


def test_the_origin_of_many_elements_is_one_object() -> None:
    coder = WindowedValueCoder(BytesCoder(), GlobalWindowCoder())
    origin = create(None, 0, (GlobalWindow(),), PANE_INFO_UNKNOWN)
    block = as_beam_writes(coder, [origin.with_value(b"x")] * 3000)
    pieces = list(BlockReader(coder).read(block))
    assert sum(len(values) for values, _ in pieces) == 3000
    assert len({id(each) for _, origins in pieces for each in origins}) == 1
    assert pieces[0][1][0].pane_info is PANE_INFO_UNKNOWN


@pytest.mark.parametrize("odd", [None, 0, 1, 1023, 1024, 1999, 2999])
@pytest.mark.parametrize("header", [True, False])
def test_many_elements_alike_but_for_one(odd: int | None, *, header: bool) -> None:
    """Elements come in pieces: the odd one is at the border of two, or within one."""
    coder = WindowedValueCoder(BytesCoder(), GlobalWindowCoder())
    origin, other = (create(None, us, (GlobalWindow(),), PANE_INFO_UNKNOWN) for us in (0, 1000))
    elements = [origin.with_value(b"%06d" % number) for number in range(3000)]
    values = [element.value for element in elements]
    origins = [origin] * len(elements)
    if odd is not None and header:
        elements[odd], origins[odd] = other.with_value(values[odd]), other
    elif odd is not None:
        values[odd] = b"of another length"
        elements[odd] = origin.with_value(values[odd])
    out: list[bytes] = []
    BlockWriter(coder).write(values, origins, out)
    assert b"".join(out) == as_beam_writes(coder, elements)
    assert read(coder, b"".join(out)) == elements


@given(elements_of(SHAPES), st.data())
def test_a_block_that_is_cut_is_malformed(
    case: tuple[WindowedValueCoder, list[WindowedValue]], data: st.DataObject
) -> None:
    coder, elements = case
    block = as_beam_writes(coder, elements)
    ends = {len(as_beam_writes(coder, elements[:count])) for count in range(len(elements) + 1)}
    cut = data.draw(st.integers(0, len(block)))
    if cut in ends:
        assert len(read(coder, block[:cut])) < len(elements) + 1
    else:
        with pytest.raises(MalformedBytesError):
            read(coder, block[:cut])


@given(st.sampled_from(SHAPES), st.sampled_from(WINDOWS), st.binary(max_size=60))
def test_any_bytes_are_elements_or_malformed(shape: Any, window: Any, block: bytes) -> None:
    coder = WindowedValueCoder(shape[0], window[0])
    try:
        elements = read(coder, block)
    except MalformedBytesError:
        return
    assert len(elements) <= len(block)


TIME = b"\x80" + bytes(7)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (b"\xff" * 7, "ends within"),
        (bytes(8) + struct.pack(">i", 1) + b"\x0f\0", "-9223372036854775808 ms is no timestamp"),
        (b"\xff" * 8 + struct.pack(">i", 1) + b"\x0f\0", "9223372036854775807 ms is no timestamp"),
        (TIME + struct.pack(">i", -1), "-1 windows"),
        (TIME + struct.pack(">i", 2) + b"\x0f\0", "2 windows"),  # global ones
        (TIME + struct.pack(">i", 1 << 20) + b"\x0f\0", "1048576 windows"),
        (TIME + struct.pack(">i", 1) + b"\x0f" + b"\xff" * 9 + b"\1", "announced"),
        (TIME + struct.pack(">i", 1) + b"\xff", "kind 15"),
        (TIME + struct.pack(">i", 1) + b"\x10\x80\x80\x80\x80\x08\0", "index 2147483648"),
        (TIME + struct.pack(">i", 1) + b"\x0f" + b"\xff" * 11, "more than 64 bits"),
        (TIME + struct.pack(">i", 1) + b"\x0f" + b"\xff" * 4 + b"\x0f", "ends within"),
    ],
)
def test_nonsense_is_told(block: bytes, words: str) -> None:
    with pytest.raises(MalformedBytesError, match=words):
        read(WindowedValueCoder(BytesCoder(), GlobalWindowCoder()), block)


def test_headers_of_very_many_windows_are_not_remembered() -> None:
    coder = WindowedValueCoder(BytesCoder(), IntervalWindowCoder())
    windows = tuple(IntervalWindow(start, start + 1) for start in range(1000))
    reader = HeaderReader(coder)
    for second in range(3):
        element = WindowedValue(b"", second, windows)
        header = as_beam_writes(coder, [element])[:-1]
        assert reader.decode(header).windows == windows
    assert not reader._origins
