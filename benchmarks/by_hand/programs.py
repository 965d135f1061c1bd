"""RDD programs that compute what the pipelines of ``benchmarks.cases`` do, with the same functions.

They have as many partitions as the session has slots, as pipelines have, and check their results.
"""

import functools
import shutil
from collections.abc import Callable, Iterable, Iterator
from operator import add
from pathlib import Path
from typing import Any

from apache_beam.examples.wordcount import WordExtractingDoFn
from pyspark import SparkContext

from benchmarks.cases import bounds_of, check, key_and_value, text_of

_ENTRIES = 100_000


def _numbers(context: SparkContext, size: int) -> Any:
    bounds = context.parallelize(bounds_of(size), context.defaultParallelism)
    return bounds.flatMap(lambda bounds: iter(range(*bounds)))


def _length(values: Iterable[Any]) -> int:
    return sum(1 for _ in values)


def word_count(context: SparkContext, size: int, folder: Path) -> None:
    """Count the words of ``size`` MB of text."""
    shutil.rmtree(folder / "counts-by-hand", ignore_errors=True)
    slots = context.defaultParallelism
    lines = context.textFile(str(text_of(size, folder)), slots)
    words = lines.flatMap(WordExtractingDoFn().process)
    counts = words.map(lambda word: (word, 1)).reduceByKey(add, slots)
    printed = counts.map(lambda pair: f"{pair[0]}: {pair[1]}")
    printed.saveAsTextFile(str(folder / "counts-by-hand"))


def ten_maps(context: SparkContext, size: int, folder: Path) -> None:
    """Process ``size`` numbers by ten functions."""
    numbers = _numbers(context, size)
    for _ in range(10):
        numbers = numbers.map(lambda number: number + 1)
    check(numbers.count(), size)


def group_by_key(context: SparkContext, size: int, folder: Path) -> None:
    """Group ``size`` pairs of 100 bytes."""
    pairs = _numbers(context, size).map(lambda number: key_and_value(number, size))
    groups = pairs.groupByKey(context.defaultParallelism)
    check(groups.map(lambda group: _length(group[1])).sum(), size)


def co_group_by_key(context: SparkContext, size: int, folder: Path) -> None:
    """Join two RDDs of ``size`` pairs of 100 bytes each."""
    left, right = (
        _numbers(context, size).map(lambda number: key_and_value(number, size)) for _ in range(2)
    )
    groups = left.cogroup(right, context.defaultParallelism)
    check(groups.map(lambda group: sum(map(_length, group[1]))).sum(), 2 * size)


def as_dict(context: SparkContext, size: int, folder: Path) -> None:
    """Look each of ``size`` numbers up in a broadcast dictionary of 100,000 entries."""
    entries = context.parallelize(range(_ENTRIES), context.defaultParallelism)
    table = context.broadcast(entries.map(lambda number: (number, number % 7)).collectAsMap())
    found = _numbers(context, size).map(lambda number: table.value[number % _ENTRIES])
    check(found.sum(), sum(number % _ENTRIES % 7 for number in range(size)))


def stateful(context: SparkContext, size: int, folder: Path, *, keys: int) -> None:
    """Sum and count the values of each of ``keys`` keys."""

    def sums(values: Iterable[int]) -> Iterator[int]:
        total = count = 0
        for value in values:
            total, count = total + value, count + 1
        yield total + count

    pairs = _numbers(context, size).map(lambda number: (number % keys, 2))
    groups = pairs.groupByKey(context.defaultParallelism)
    check(groups.flatMap(lambda group: sums(group[1])).sum(), 3 * size)


PROGRAMS: dict[str, Callable[[SparkContext, int, Path], None]] = {
    "word_count": word_count,
    "ten_maps": ten_maps,
    "group_by_key": group_by_key,
    "co_group_by_key": co_group_by_key,
    "as_dict": as_dict,
    "stateful_1k_keys": functools.partial(stateful, keys=1_000),
    "stateful_100k_keys": functools.partial(stateful, keys=100_000),
}
