"""Elements of all kinds, written as rows and read again."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from apache_beam.coders import (
    BytesCoder,
    WindowedValueCoder,
)
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import (
    WindowedValue,
)
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.core import urns
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.cursor import RowCursor
from beam_spark_runner.engine.rows.joined_keys import join_key, split_key
from beam_spark_runner.engine.rows.readers import ElementRowReader
from beam_spark_runner.engine.rows.writing import EncodingError
from beam_spark_runner.plan.model import Delivery
from tests.unit.engine.rows.written_rows import DEST, GLOBAL, PAIRS, Pushing, edge_of, written


@pytest.mark.parametrize(
    ("delivery", "coder", "element", "words"),
    [
        (Delivery.GROUP_BY_KEY, PAIRS, ("text", b""), "key or value"),
        (Delivery.GROUP_BY_KEY, PAIRS, (b"", 5), "key or value"),
        (Delivery.BY_KEY, PAIRS, ("text", b""), "key or value"),
        (Delivery.BY_KEY, PAIRS, (b"", 5), "key or value"),
        (Delivery.REDISTRIBUTE, BytesCoder(), "text", "value"),
        (Delivery.SIDE_INPUT, BytesCoder(), "text", "value"),
        (Delivery.REDISTRIBUTE_BY_SIZE, PAIRS, (b"", 5.0), "restriction"),
    ],
)
def test_an_element_that_does_not_encode(
    delivery: Delivery, coder: Any, element: Any, words: str
) -> None:
    edge = edge_of(delivery, access_pattern=urns.SIDE_INPUT_ITERABLE)
    windowed = WindowedValueCoder(coder, GlobalWindowCoder())
    with pytest.raises(EncodingError) as caught:
        written(edge, windowed, [WindowedValue(element, MIN_TIMESTAMP, (GLOBAL,))])
    text = f"the output of this step cannot be encoded: the {words} of an element for Outer/step: "
    assert str(caught.value).startswith(text)
    assert repr(element) in str(caught.value)


class Unprintable:
    def __repr__(self) -> str:
        raise KeyError("not why it does not encode")


def test_an_element_that_neither_encodes_nor_can_be_shown() -> None:
    coder = WindowedValueCoder(BytesCoder(), GlobalWindowCoder())
    with pytest.raises(EncodingError, match=r"Unprintable <a Unprintable whose __repr__ raises>: "):
        written(
            edge_of(Delivery.REDISTRIBUTE),
            coder,
            [WindowedValue(Unprintable(), MIN_TIMESTAMP, (GLOBAL,))],
        )


@pytest.mark.parametrize("delivery", [Delivery.GROUP_BY_KEY, Delivery.REDISTRIBUTE])
def test_an_element_over_the_limit(delivery: Delivery) -> None:
    coder = WindowedValueCoder(PAIRS, GlobalWindowCoder())
    element = WindowedValue((b"k", bytes(1000)), MIN_TIMESTAMP, (GLOBAL,))
    written(edge_of(delivery), coder, [element], largest=1010)
    with pytest.raises(EncodingError, match=r"limit of 990 bytes .* sent to Outer/step"):
        written(edge_of(delivery), coder, [element], largest=990)


@given(st.binary(), st.binary(), st.binary(), st.binary())
def test_joined_keys_are_equal_for_equal_pairs_only(
    key: bytes, window: bytes, other_key: bytes, other_window: bytes
) -> None:
    assert split_key(join_key(key, window)) == (key, window)
    are_equal = join_key(key, window) == join_key(other_key, other_window)
    assert are_equal == ((key, window) == (other_key, other_window))


def test_rows_of_other_destinations_are_passed_on() -> None:
    edge = edge_of(Delivery.REDISTRIBUTE)
    routes = np.zeros(2, np.int64)
    mine = schema.batch_of(int(DEST), routes, None, None, [b"a", b"b"])
    others = schema.batch_of(9 | schema.WINDOWED, routes, None, None, [b"c", b"d"])
    mixed = pa.Table.from_batches([mine, others, mine]).combine_chunks().to_batches()
    passed: list[pa.RecordBatch] = []
    cursor = RowCursor(iter(mixed), {int(DEST)}, passed.append)
    found: list[Any] = []
    coder = WindowedValueCoder(BytesCoder(), GlobalWindowCoder())
    reader = ElementRowReader(edge, coder, Pushing(found.append))
    while cursor.load():
        reader.read(cursor)
    assert [each.value for each in found] == [b"a", b"b"] * 2
    assert [value for batch in passed for value in batch["value"].to_pylist()] == [b"c", b"d"]
