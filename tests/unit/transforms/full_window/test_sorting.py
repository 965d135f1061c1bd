"""Sorting in bounded memory: order, stability, files, memory."""

import math
import operator
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Sequence
from functools import total_ordering
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.transforms.full_window.runs import RecordBlock
from beam_spark_runner.transforms.full_window.sorting import ExternalSorter, UnsortableKeyError

SMALL = 1 << 12


def decode(block: RecordBlock) -> tuple[list[Any], list[int]]:
    """What an element is, and its number."""
    return [*map(pickle.loads, block.coded)], block.numbers


def sorter_of(
    values: Sequence[Any],
    key: Callable[[Any], Any],
    *,
    descends: bool = False,
    memory_bytes: int = SMALL,
    at_once: int = 7,
) -> ExternalSorter:
    sorter = ExternalSorter(decode, key, descends=descends, memory_bytes=memory_bytes)
    for start in range(0, len(values), at_once):
        some = values[start : start + at_once]
        sorter.add([*map(key, some)], RecordBlock([*map(pickle.dumps, some)], [0] * len(some)))
    return sorter


def values_of(sorter: ExternalSorter) -> list[Any]:
    return [value for values, _ in sorter.sorted() for value in values]


def files_of_sorters() -> list[str]:
    """The files that sorters of this process have open, by what they are linked to."""
    links = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            links.append(os.readlink(link))
        except FileNotFoundError:  # the folder's own
            continue
    return [each for each in links if each.startswith(tempfile.gettempdir())]


@pytest.mark.parametrize("descends", [False, True])
@pytest.mark.parametrize("memory_bytes", [1, SMALL, 1 << 20])
@pytest.mark.parametrize("others", [(), (7,)], ids=["floats", "and an int"])
def test_what_is_not_a_number_comes_last(
    descends: bool, memory_bytes: int, others: tuple[int, ...]
) -> None:
    numbers = [*map(float, range(1, 400)), *others]
    random.Random(1).shuffle(numbers)
    values = [*numbers[:100], float("nan"), *numbers[100:300], float("nan"), *numbers[300:]]
    sorter = sorter_of(values, lambda value: value, descends=descends, memory_bytes=memory_bytes)
    *found, first, second = values_of(sorter)
    assert found == sorted(numbers, reverse=descends)
    assert math.isnan(first)
    assert math.isnan(second)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers())),
    st.booleans(),
    st.sampled_from([1, SMALL, 1 << 20]),
)
def test_it_is_python_s_stable_sort(
    values: list[tuple[int, int]], descends: bool, memory_bytes: int
) -> None:
    key = operator.itemgetter(0)
    sorter = sorter_of(values, key, descends=descends, memory_bytes=memory_bytes)
    assert values_of(sorter) == sorted(values, key=key, reverse=descends)


@pytest.mark.parametrize("descends", [False, True])
@pytest.mark.parametrize("count", [5_000, 40_000])
def test_runs_that_are_merged_more_than_once_stay_stable(descends: bool, count: int) -> None:
    chance = random.Random(1)
    values = [(chance.randrange(50), number) for number in range(count)]
    key = operator.itemgetter(0)
    sorter = sorter_of(values, key, descends=descends, at_once=128)
    assert values_of(sorter) == sorted(values, key=key, reverse=descends)
    assert sorter.spilled_bytes > sum(len(pickle.dumps(value)) for value in values)


@total_ordering
class Version:
    """An order that no bytes have."""

    def __init__(self, text: str) -> None:
        self.parts = [int(part) for part in text.split(".")]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.parts == other.parts

    def __lt__(self, other: "Version") -> bool:
        return self.parts < other.parts

    def __hash__(self) -> int:
        return hash(tuple(self.parts))


@pytest.mark.parametrize(
    ("values", "key"),
    [
        pytest.param([*range(3_000, 0, -1)], lambda value: value, id="whole numbers"),
        pytest.param([1 << 70, -(1 << 70), 0, 5] * 400, lambda value: value, id="very large ones"),
        pytest.param([0.5, -1.5, 3, float("inf")] * 400, lambda value: value, id="mixed numbers"),
        pytest.param(["b", "ä", "a", ""] * 400, lambda value: value, id="text"),
        pytest.param([("b", 1), ("a", 2)] * 700, lambda value: value, id="tuples"),
        pytest.param(["1.10", "1.9", "0.1"] * 400, Version, id="an order of the user's"),
    ],
)
@pytest.mark.parametrize("descends", [False, True])
def test_keys_of_any_order(values: list[Any], key: Callable[[Any], Any], descends: bool) -> None:
    sorter = sorter_of(values, key, descends=descends)
    assert values_of(sorter) == sorted(values, key=key, reverse=descends)
    assert sorter.spilled_bytes


@pytest.mark.parametrize("memory_bytes", [SMALL, 1 << 20])
def test_keys_without_an_order_are_named(memory_bytes: int) -> None:
    with pytest.raises(UnsortableKeyError, match="'<' not supported between instances of"):
        values_of(sorter_of([1, "a", None] * 300, lambda value: value, memory_bytes=memory_bytes))


def test_numbers_go_along() -> None:
    sorter = ExternalSorter(decode, int, descends=False, memory_bytes=SMALL)
    for number in range(2_000):
        coded = pickle.dumps(number)
        sorter.add([number], RecordBlock([coded], [number % 3]))
    found = [pair for some in sorter.sorted() for pair in zip(*some, strict=True)]
    assert found == [(number, number % 3) for number in range(2_000)]


def test_records_that_are_larger_than_the_memory() -> None:
    values = [bytes([number]) * 20_000 for number in (3, 1, 2)]
    assert values_of(sorter_of(values, lambda value: value[0], at_once=1)) == sorted(values)


def test_files_have_no_names_and_are_closed(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sorter = sorter_of([*range(10_000)], lambda value: -value, at_once=128)
    assert sorter.spilled_bytes
    assert files_of_sorters()
    assert not [*tmp_path.iterdir()]
    rest = sorter.sorted()
    next(rest)
    assert files_of_sorters()
    sorter.close()
    assert not files_of_sorters()


SPILL = """
import os, signal
from beam_spark_runner.transforms.full_window.runs import RecordBlock
from beam_spark_runner.transforms.full_window.sorting import ExternalSorter
sorter = ExternalSorter(lambda block: ([*map(int, block.coded)], block.coded), int,
                        descends=False, memory_bytes=4096)
for number in range(10_000):
    sorter.add([number], RecordBlock([b"%d" % number], [0]))
print(sorter.spilled_bytes > 0, flush=True)
rest = sorter.sorted()
next(rest)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_is_killed_leaves_no_files(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SPILL],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "True\n")
    assert not [*tmp_path.iterdir()]


def test_all_files_are_closed_at_the_end(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sorter = sorter_of([*range(40_000)], lambda value: -value, at_once=128)
    assert values_of(sorter)[0] == 39_999
    assert not files_of_sorters()


@pytest.mark.parametrize("key", [lambda value: value, operator.itemgetter(0), len])
def test_memory_stays_within_a_few_times_the_limit(key: Callable[[Any], Any]) -> None:
    limit = 1 << 20
    chance = random.Random(2)
    tracemalloc.start()
    try:
        sorter = ExternalSorter(decode, key, descends=False, memory_bytes=limit)
        for _ in range(400):
            some = [chance.randbytes(100) for _ in range(128)]
            sorter.add([*map(key, some)], RecordBlock([*map(pickle.dumps, some)], [0] * len(some)))
        _, while_adding = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        assert sum(len(values) for values, _ in sorter.sorted()) == 400 * 128
        _, while_merging = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert while_adding < 3 * limit
    assert while_merging < 4 * limit
