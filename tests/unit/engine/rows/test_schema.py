import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.engine.rows import schema


@given(st.lists(st.binary(max_size=200), max_size=8), st.integers(1, 64), st.randoms())
def test_pieces_join_in_any_order(values: list[bytes], limit: int, chance: random.Random) -> None:
    pieces = [piece for value in values for piece in schema.cut(value, limit)]
    chance.shuffle(pieces)
    joiner = schema.PieceJoiner()
    whole = [value for piece in pieces if (value := joiner.add(piece)) is not None]
    assert sorted(whole) == sorted(value for value in values if value)  # nothing: no pieces
    joiner.check_empty()


def test_a_missing_piece_is_noticed() -> None:
    joiner = schema.PieceJoiner()
    first, _ = schema.cut(b"abcdef", 3)
    assert joiner.add(first) is None
    with pytest.raises(InvariantError, match=r"1 long value\(s\) arrived without all pieces"):
        joiner.check_empty()


def test_a_block_is_what_a_batch_was_built_of() -> None:
    routes = np.array([3, -4], np.int64)
    batch = schema.batch_of(5 | schema.WINDOWED, routes, None, [b"k", b""], [b"", b"v"])
    assert batch.schema == schema.ARROW_SCHEMA
    block = schema.block_of(batch)
    assert len(block) == 2
    assert (block.dests & schema.DEST_MASK).tolist() == [5, 5]
    assert (block.dests & schema.WINDOWED != 0).all()
    assert (block.routes.tolist(), block.orders.tolist()) == ([3, -4], [0, 0])
    assert (block.keys, block.values) == ([b"k", b""], [b"", b"v"])


def test_a_batch_may_have_orders_and_no_keys() -> None:
    orders = np.array([schema.BARE, 7], np.int64)
    batch = schema.batch_of(schema.REPORT, np.array([1, 2], np.int64), orders, None, [b"a", b"b"])
    block = schema.block_of(batch)
    assert block.orders.tolist() == [-(2**63), 7]
    assert block.keys == [None, None]


def test_flags_and_destinations_do_not_touch() -> None:
    flags = [schema.WINDOWED, schema.PIECE, schema.LONG_KEY]
    assert [bin(flag).count("1") for flag in flags] == [1, 1, 1]
    assert sum(flags) == schema.WINDOWED | schema.PIECE | schema.LONG_KEY
    routes = np.zeros(1, np.int64)
    for dest in (schema.CONTROL, 1, schema.REPORT):
        batch = schema.batch_of(dest | sum(flags), routes, None, None, [b""])
        assert schema.dests_of(batch).tolist() == [dest]


def test_columns_that_are_never_null_are_as_all_others() -> None:
    batch = schema.batch_of(5, np.array([3], np.int64), None, [b"k"], [b"v"])
    strict = pa.schema([each.with_nullable(False) for each in schema.ARROW_SCHEMA])
    found = schema.conformed(batch.cast(strict))
    assert found.schema == schema.ARROW_SCHEMA
    assert found.to_pylist() == batch.to_pylist()


def test_a_block_without_pieces_stays_what_it_is() -> None:
    routes = np.zeros(1, np.int64)
    block = schema.block_of(schema.batch_of(5 | schema.WINDOWED, routes, None, None, [b"v"]))
    assert schema.PieceJoiner().join_block(block) is block


def test_no_piece_is_longer_than_the_limit() -> None:
    header = 24
    assert [len(piece) - header for piece in schema.cut(bytes(10), 4)] == [4, 4, 2]
    assert [len(piece) - header for piece in schema.cut(bytes(8), 4)] == [4, 4]


def test_a_joined_block_keeps_its_other_columns() -> None:
    first, last = schema.cut(b"abcdef", 3)
    flags = schema.PIECE | schema.WINDOWED
    block = schema.RowBatch(
        dests=np.array([7, 7 | flags, 8, 7 | flags], np.int32),
        routes=np.array([1, 2, 3, 2], np.int64),
        orders=np.array([10, 20, 30, 20], np.int64),
        keys=[b"a", b"b", None, b"b"],
        values=[b"x", last, b"y", first],
    )
    joined = schema.PieceJoiner().join_block(block)
    assert joined.dests.tolist() == [7, 8, 7 | schema.WINDOWED]
    assert joined.routes.tolist() == [1, 3, 2]
    assert joined.orders.tolist() == [10, 30, 20]
    assert joined.keys == [b"a", None, b"b"]
    assert joined.values == [b"x", b"y", b"abcdef"]


def test_batches_travel_as_text() -> None:
    routes = np.array([1, 2], np.int64)
    batches = [
        schema.batch_of(7, routes, None, None, [b"", b"x\0"]),
        schema.batch_of(8, routes, None, [None, b"k"], [b"y", b"z"]),
    ]
    assert schema.batches_of_text(schema.text_of_batches(batches)) == batches
