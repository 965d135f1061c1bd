"""The key with the most rows of a task, which people are shown."""

import random

import numpy as np
import pytest
from apache_beam.coders import BytesCoder, TupleCoder, WindowedValueCoder
from apache_beam.coders.coders import Coder, GlobalWindowCoder

from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.cursor import LargestKey, RowCursor
from beam_spark_runner.engine.rows.readers import reader_for
from beam_spark_runner.engine.stages.charging import AbandonedError
from beam_spark_runner.harness.values.spilled_group import ValueLogs
from beam_spark_runner.plan.model import Delivery
from tests.unit.engine.rows.written_rows import Pushing, edge_of

DEST = 7


def largest(keys: list[bytes | None], sizes: list[int]) -> LargestKey:
    """Read sorted rows with these keys in batches of these sizes."""
    routes = np.array([DEST << 56 | (key[0] if key else 0) for key in keys], np.int64)
    batches, begin = [], 0
    for size in sizes:
        part = slice(begin, begin + size)
        batches.append(schema.batch_of(DEST, routes[part], None, keys[part], [b"v"] * size))
        begin += size
    cursor = RowCursor(iter(batches), {DEST}, pytest.fail)
    while cursor.load():
        assert cursor.block is not None
        cursor.position = len(cursor.block)
    assert cursor.rows == len(keys)
    return cursor.largest


@pytest.mark.parametrize(
    ("keys", "sizes", "found"),
    [
        pytest.param([], [0], LargestKey(), id="no rows"),
        pytest.param([None] * 3, [3], LargestKey(), id="no keys"),
        pytest.param([b"a", b"b", b"b"], [3], LargestKey(DEST, b"b", 2), id="in one batch"),
        pytest.param([b"a"] * 2 + [b"b"] * 9, [3, 4, 4], LargestKey(DEST, b"b", 9), id="in three"),
        pytest.param([b"a"] * 4 + [b"b"] * 3, [2, 2, 3], LargestKey(DEST, b"a", 4), id="at an end"),
    ],
)
def test_the_longest_run(keys: list[bytes | None], sizes: list[int], found: LargestKey) -> None:
    assert largest(keys, sizes) == found


def test_any_batches_make_the_same_key() -> None:
    chance = random.Random(3)
    for _ in range(50):
        counts = [chance.randrange(1, 9) for _ in range(chance.randrange(1, 6))]
        counts[chance.randrange(len(counts))] += 20
        keys: list[bytes | None] = []
        for place, count in enumerate(counts, 1):
            keys += [bytes([place])] * count
        sizes, left = [], len(keys)
        while left:
            sizes.append(chance.randrange(1, left + 1))
            left -= sizes[-1]
        key = counts.index(max(counts)) + 1
        assert largest(keys, sizes) == LargestKey(DEST, bytes([key]), max(counts))


class _Buffering(Coder):  # type: ignore[misc]
    """Keeps what it has decoded last."""

    buffer = b""

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, coded: bytes) -> bytes:
        if coded == b"abandoned":
            raise AbandonedError
        self.buffer = coded
        return self.buffer


def _text_of(coder: Coder, key: bytes) -> str:
    pairs = WindowedValueCoder(TupleCoder([coder, BytesCoder()]), GlobalWindowCoder())
    edge = edge_of(Delivery.BY_KEY)
    return reader_for(edge, pairs, Pushing(lambda value: None), ValueLogs(1 << 20)).text_of_key(key)


def test_the_text_of_a_key_does_not_use_the_coder_with_which_the_task_decodes() -> None:
    """It is made in another thread, and not all coders may be used in two."""
    coder = _Buffering()
    coder.get_impl()
    assert _text_of(coder, b"k") == "b'k'"
    assert coder.buffer == b""


def test_a_task_that_is_interrupted_in_the_coder_of_a_key_ends() -> None:
    with pytest.raises(AbandonedError):
        _text_of(_Buffering(), b"abandoned")
