import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.spark import rows


@given(st.lists(st.binary(max_size=200), max_size=8), st.integers(1, 64), st.randoms())
def test_pieces_join_in_any_order(values: list[bytes], limit: int, chance: random.Random) -> None:
    pieces = [piece for value in values for piece in rows.cut(value, limit)]
    chance.shuffle(pieces)
    joiner = rows.PieceJoiner()
    whole = [value for piece in pieces if (value := joiner.add(piece)) is not None]
    assert sorted(whole) == sorted(value for value in values if value)  # nothing: no pieces
    joiner.check_empty()


def test_a_missing_piece_is_noticed() -> None:
    joiner = rows.PieceJoiner()
    first, _ = rows.cut(b"abcdef", 3)
    assert joiner.add(first) is None
    with pytest.raises(InvariantError, match=r"1 long value\(s\) arrived without all pieces"):
        joiner.check_empty()


def test_a_block_is_what_a_batch_was_built_of() -> None:
    routes = np.array([3, -4], np.int64)
    batch = rows.batch_of(5 | rows.WINDOWED, routes, None, [b"k", b""], [b"", b"v"])
    assert batch.schema == rows.ARROW_SCHEMA
    block = rows.block_of(batch)
    assert len(block) == 2
    assert (block.dests & rows.DEST_MASK).tolist() == [5, 5]
    assert (block.dests & rows.WINDOWED != 0).all()
    assert (block.routes.tolist(), block.orders.tolist()) == ([3, -4], [0, 0])
    assert (block.keys, block.values) == ([b"k", b""], [b"", b"v"])


def test_a_joined_block_keeps_its_other_columns() -> None:
    first, last = rows.cut(b"abcdef", 3)
    flags = rows.PIECE | rows.WINDOWED
    block = rows.Block(
        dests=np.array([7, 7 | flags, 8, 7 | flags], np.int32),
        routes=np.array([1, 2, 3, 2], np.int64),
        orders=np.array([10, 20, 30, 20], np.int64),
        keys=[b"a", b"b", None, b"b"],
        values=[b"x", last, b"y", first],
    )
    joined = rows.PieceJoiner().join_block(block)
    assert joined.dests.tolist() == [7, 8, 7 | rows.WINDOWED]
    assert joined.routes.tolist() == [1, 3, 2]
    assert joined.orders.tolist() == [10, 30, 20]
    assert joined.keys == [b"a", None, b"b"]
    assert joined.values == [b"x", b"y", b"abcdef"]
