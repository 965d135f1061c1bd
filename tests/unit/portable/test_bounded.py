"""Values of strangers are read within their bytes, and all else is an error."""

import struct
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from apache_beam.coders import (
    BooleanCoder,
    BytesCoder,
    Coder,
    FloatCoder,
    IterableCoder,
    NullableCoder,
    StrUtf8Coder,
    TupleCoder,
    VarIntCoder,
)
from apache_beam.coders.coders import (
    GlobalWindowCoder,
    IntervalWindowCoder,
    LengthPrefixCoder,
    TimestampPrefixingOpaqueWindowCoder,
)
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms.window import GlobalWindow, IntervalWindow

pytest.importorskip("hypothesis")
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.portable.bounded import (
    BoundedReader,
    MalformedBytesError,
    decode_window,
    skipper,
)

HUGE = b"\x80\x80\x80\x80\x01"
"""2^28, as a varint."""
TOO_LONG = b"\xff" * 10 + b"\x01"
"""A varint of eleven bytes."""
Read = Callable[[BoundedReader], Any]


def texts(reader: BoundedReader) -> list[str]:
    return reader.items(BoundedReader.text)


@pytest.mark.parametrize(
    ("read", "data", "problem"),
    [
        pytest.param(BoundedReader.unsigned, b"", "cut off", id="no varint"),
        pytest.param(BoundedReader.unsigned, b"\x80", "cut off", id="half a varint"),
        pytest.param(BoundedReader.unsigned, TOO_LONG, "more than 64 bits", id="11 bytes"),
        pytest.param(
            BoundedReader.unsigned, b"\xff" * 9 + b"\x02", "more than 64 bits", id="65 bits"
        ),
        pytest.param(BoundedReader.prefixed, HUGE + b"abc", "3 are left", id="a length of 2^28"),
        pytest.param(BoundedReader.prefixed, b"\xff" * 9 + b"\x01", "0 are left", id="of 2^64"),
        pytest.param(BoundedReader.text, b"\x02\xff\xfe", "UTF-8", id="no text"),
        pytest.param(BoundedReader.count, b"\0\0\0", "3 are left", id="half a count"),
        pytest.param(texts, struct.pack(">i", 1 << 30), "cut off", id="2^30 texts"),
        pytest.param(texts, struct.pack(">i", -2), "-2 items", id="-2 texts"),
        pytest.param(texts, struct.pack(">i", -1) + HUGE, "cut off", id="a batch of 2^28 texts"),
        pytest.param(texts, struct.pack(">i", -1) + b"\1\1a", "cut off", id="no last batch"),
        pytest.param(texts, struct.pack(">i", 1) + HUGE, "cut off", id="a text of 2^28 bytes"),
    ],
)
def test_what_does_not_fit_is_malformed(read: Read, data: bytes, problem: str) -> None:
    with pytest.raises(MalformedBytesError, match=problem):
        read(BoundedReader(data))


@pytest.mark.parametrize(
    ("read", "data", "value"),
    [
        (BoundedReader.unsigned, b"\xff" * 9 + b"\x01", (1 << 64) - 1),
        (BoundedReader.signed, b"\xff" * 9 + b"\x01", -1),
        (BoundedReader.signed, HUGE, 1 << 28),
        (BoundedReader.prefixed, b"\0", b""),
        (texts, struct.pack(">i", 2) + b"\1a\1b", ["a", "b"]),
        (texts, struct.pack(">i", -1) + b"\1\1a\1\1b\0", ["a", "b"]),
        (texts, struct.pack(">i", 0), []),
    ],
)
def test_what_fits_is_read(read: Read, data: bytes, value: Any) -> None:
    reader = BoundedReader(data)
    assert read(reader) == value
    reader.end()


def test_trailing_bytes_are_malformed() -> None:
    reader = BoundedReader(b"\1a more")
    assert reader.prefixed() == b"a"
    with pytest.raises(MalformedBytesError, match="5 more bytes"):
        reader.end()


def coders_of(coder: Coder) -> tuple[Mapping[str, beam_runner_api_pb2.Coder], str]:
    context = PipelineContext()
    id_ = context.coders.get_id(coder)
    return context.to_runner_api().coders, id_


KNOWN: list[tuple[Coder, st.SearchStrategy[Any]]] = [
    (BytesCoder(), st.binary(max_size=200)),
    (StrUtf8Coder(), st.text(max_size=100)),
    (VarIntCoder(), st.integers(-(2**63), 2**63 - 1)),
    (BooleanCoder(), st.booleans()),
    (FloatCoder(), st.floats(allow_nan=False)),
    (LengthPrefixCoder(FloatCoder()), st.floats(allow_nan=False)),
    (NullableCoder(VarIntCoder()), st.none() | st.integers(0, 2**40)),
    (
        TupleCoder([StrUtf8Coder(), IterableCoder(VarIntCoder())]),
        st.tuples(st.text(max_size=5), st.lists(st.integers(0, 300), max_size=5)),
    ),
    (
        IntervalWindowCoder(),
        st.builds(
            lambda start, size: IntervalWindow(start, start + size),
            st.integers(0, 10**9),
            st.integers(1, 10**5),
        ),
    ),
]


@given(st.sampled_from(KNOWN), st.data())
def test_a_skipper_finds_the_end_of_each_value(
    known: tuple[Coder, st.SearchStrategy[Any]], data: st.DataObject
) -> None:
    coder, values = known
    encode = coder.get_impl().encode_nested
    coded = [encode(value) for value in data.draw(st.lists(values, max_size=4))]
    skip = skipper(*coders_of(coder))
    assert skip is not None
    reader = BoundedReader(b"".join(coded))
    for _ in coded:
        skip(reader)
    reader.end()


@given(st.sampled_from([coder for coder, _ in KNOWN]), st.binary(max_size=40))
def test_a_skipper_ends_within_any_bytes(coder: Coder, data: bytes) -> None:
    skip = skipper(*coders_of(coder))
    assert skip is not None
    reader = BoundedReader(data)
    try:
        skip(reader)
    except MalformedBytesError:
        return
    assert 0 <= reader.bytes_left < len(data)


def unknown(*urns: str) -> dict[str, beam_runner_api_pb2.Coder]:
    """Return coders of which each is the component of the one before it."""
    return {
        str(number): beam_runner_api_pb2.Coder(
            spec=beam_runner_api_pb2.FunctionSpec(urn=urn),
            component_coder_ids=[str(number + 1)] if number + 1 < len(urns) else [],
        )
        for number, urn in enumerate(urns)
    }


@pytest.mark.parametrize(
    "coders",
    [
        pytest.param({}, id="missing"),
        pytest.param(unknown("beam:coder:javasdk:v1"), id="of an SDK"),
        pytest.param(unknown("beam:coder:iterable:v1", "beam:coder:other:v1"), id="with one"),
        pytest.param(unknown("beam:coder:iterable:v1"), id="without its component"),
        pytest.param(unknown("beam:coder:global_window:v1"), id="of nothing"),
        pytest.param(unknown(*["beam:coder:iterable:v1"] * 1000), id="too deep"),
    ],
)
def test_there_is_no_skipper_for_other_coders(
    coders: Mapping[str, beam_runner_api_pb2.Coder],
) -> None:
    assert skipper(coders, "0") is None


TIME = b"\x80" + bytes(7)
INTERVAL = IntervalWindowCoder().encode(IntervalWindow(5, 10))


@pytest.mark.parametrize(
    ("coder", "coded", "problem"),
    [
        (GlobalWindowCoder(), b"x", "0 bytes, not 1"),
        (IntervalWindowCoder(), b"", "end within"),
        (IntervalWindowCoder(), INTERVAL[:-1], "end within"),
        (IntervalWindowCoder(), INTERVAL + b"x", "not"),
        (IntervalWindowCoder(), INTERVAL[:8] + TOO_LONG, "64 bits"),
        (IntervalWindowCoder(), bytes(8) + b"\1", "no timestamp"),
        (TimestampPrefixingOpaqueWindowCoder(), TIME, "end within"),
        (TimestampPrefixingOpaqueWindowCoder(), b"\xff" * 8 + b"\0", "no timestamp"),
        (TimestampPrefixingOpaqueWindowCoder(), TIME + HUGE, "announced"),
        (TimestampPrefixingOpaqueWindowCoder(), TIME + b"\2x", "not"),
    ],
)
def test_bytes_that_are_no_window(coder: Coder, coded: bytes, problem: str) -> None:
    with pytest.raises(MalformedBytesError, match=problem):
        decode_window(coder, coded)


def test_windows() -> None:
    assert decode_window(IntervalWindowCoder(), INTERVAL) == IntervalWindow(5, 10)
    assert decode_window(GlobalWindowCoder(), b"") == GlobalWindow()
