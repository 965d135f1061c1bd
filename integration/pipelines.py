"""Pipelines whose results show whether rows of two runs of a random stage were ever mixed.

They check themselves, so that nothing but Spark carries their results. This is a separate module,
since executors import it by this name.
"""

import enum
import os
import random
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.testing.util import assert_that, equal_to

from integration.strikes import claim, executor_of_this_worker, kill


class Counted(beam.DoFn):  # type: ignore[misc]
    """Passes elements on and counts them."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._counter = Metrics.counter("integration", name)

    def process(self, element: Any) -> Iterator[Any]:
        self._counter.inc()
        yield element


class RandomKey(beam.DoFn):  # type: ignore[misc]
    """Another key in each run."""

    def __init__(self, keys: int) -> None:
        super().__init__()
        self._keys = keys

    def process(self, element: Any) -> Iterator[tuple[int, Any]]:
        yield random.randrange(self._keys), element


class KillsItsExecutor(beam.DoFn):  # type: ignore[misc]
    """``kill -9`` of the executor that works on the n-th element here, once per marker file.

    Args:
        marker: None: nothing is killed.
        nth: 0: between the levels, when all of the previous level is written and nothing is read.
    """

    def __init__(self, marker: str | None, nth: int) -> None:
        super().__init__()
        self._marker = marker
        self._nth = nth
        self._seen = 0

    def start_bundle(self) -> None:
        if self._marker is not None and self._nth == 0:
            kill_this_executor_once(self._marker)

    def process(self, element: Any) -> Iterator[Any]:
        self._seen += 1
        if self._marker is not None and self._seen == self._nth:
            kill_this_executor_once(self._marker)
        yield element


class LastKillsItsExecutor(beam.DoFn):  # type: ignore[misc]
    """``kill -9`` of one executor, once, when all other tasks here have read their input."""

    def __init__(self, folder: str, tasks: int) -> None:
        super().__init__()
        self._folder = Path(folder)
        self._tasks = tasks

    def process(self, element: Any) -> Iterator[Any]:
        yield element

    def finish_bundle(self) -> None:
        (self._folder / f"read-{uuid.uuid4().hex}").touch()
        if not claim(str(self._folder / "last")):
            return
        deadline = time.monotonic() + 120
        while len(list(self._folder.glob("read-*"))) < self._tasks:
            if time.monotonic() > deadline:
                raise TimeoutError(f"fewer than {self._tasks} tasks have got elements")
            time.sleep(0.1)
        time.sleep(3)  # Spark hears of their end
        kill(executor_of_this_worker())


class FailsFirst(beam.DoFn):  # type: ignore[misc]
    """Raises until as many markers as attempts exist."""

    def __init__(self, folder: str, times: int) -> None:
        super().__init__()
        self._folder = folder
        self._times = times

    def process(self, element: int) -> Iterator[int]:
        if element == 77 and len(os.listdir(self._folder)) < self._times:
            (Path(self._folder) / uuid.uuid4().hex).touch()
            raise ValueError(f"no good: {element}")
        yield element


class Ticks(beam.DoFn):  # type: ignore[misc]
    """Takes its time, and leaves a trace of every element in a file of its task."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder
        self._path = ""

    def setup(self) -> None:
        self._path = f"{self._folder}/{uuid.uuid4().hex}"

    def process(self, element: Any) -> None:
        with open(self._path, "a") as file:
            file.write(".")
        time.sleep(0.1)


def kill_this_executor_once(marker: str) -> None:
    """``kill -9`` of the executor whose worker this is, unless the marker file exists."""
    if claim(marker):
        kill(executor_of_this_worker())


def two_readers(p: beam.Pipeline, count: int, *, in_two_segments: bool) -> None:
    """Random numbers, read by two steps that must see the same ones."""
    numbers = (
        p
        | beam.Create(range(count))
        | beam.Reshuffle()
        | "Draw" >> beam.Map(lambda index: (index, random.random()))
        | "Drawn" >> beam.ParDo(Counted("drawn"))
    )
    if in_two_segments:
        total = numbers | "Values" >> beam.Values() | "Sum" >> beam.CombineGlobally(sum)
        late = numbers | "Wait" >> beam.Map(lambda pair, _: pair, beam.pvalue.AsSingleton(total))
    else:
        late = numbers | "Shuffle" >> beam.Reshuffle()
    pairs = {"early": numbers, "late": late} | beam.CoGroupByKey()
    odd = pairs | beam.Filter(
        lambda pair: len(pair[1]["early"]) != 1 or pair[1]["early"] != pair[1]["late"]
    )
    assert_that(odd, equal_to([]), label="the same numbers")
    _check_all(pairs | "Indexes" >> beam.Keys(), count)


class Place(enum.Enum):
    """Where a step of ``read_both_ways`` stands."""

    EARLY = "early"  # before the grouping of what is then kept
    KEPT = "kept"  # in the Spark stage whose rows are kept
    READER = "reader"  # in the Spark job that reads them


def read_both_ways(
    p: beam.Pipeline,
    count: int,
    step: beam.DoFn,
    place: Place = Place.KEPT,
    *,
    with_exchange: bool = False,
    as_list: bool = False,
) -> None:
    """Random numbers, read from what was kept: as main input, and as a side input.

    Args:
        p: to build into.
        count: of numbers.
        step: passes elements on.
        place: where it stands.
        with_exchange: whether Spark moves the main input before it is read.
        as_list: look the numbers up in a list, not in a map.
    """

    def stepped(here: beam.PCollection, at: Place) -> beam.PCollection:
        return here | f"At {at.value}" >> beam.ParDo(step) if at is place else here

    keyed = p | beam.Create(range(count)) | beam.Reshuffle() | beam.ParDo(RandomKey(40))
    numbers = (
        stepped(keyed, Place.EARLY)
        | beam.GroupByKey()
        | "Ungroup" >> beam.FlatMap(lambda pair: pair[1])
        | "Draw"
        >> beam.Map(lambda index: (index, random.random())).with_output_types(tuple[int, float])
    )
    numbers = stepped(numbers, Place.KEPT)
    side = beam.pvalue.AsIter(numbers) if as_list else beam.pvalue.AsMultiMap(numbers)
    read = (numbers | "Move" >> beam.Reshuffle()) if with_exchange else numbers
    compared = read | "Compare" >> beam.ParDo(_Compare(as_list), side)
    compared = stepped(compared, Place.READER)
    wrong = compared | "Wrong" >> beam.Filter(lambda each: not each[1])
    assert_that(wrong, equal_to([]), label="the same numbers")
    _check_all(compared | "Indexes" >> beam.Keys(), count)


class _Compare(beam.DoFn):  # type: ignore[misc]
    """Whether the side input has the element, and no other of its index."""

    def __init__(self, as_list: bool) -> None:
        super().__init__()
        self._as_list = as_list

    def start_bundle(self) -> None:
        self._known: dict[int, list[float]] | None = None

    def process(self, element: tuple[int, float], side: Any) -> Iterator[tuple[int, bool]]:
        index, number = element
        if not self._as_list:
            yield index, list(side[index]) == [number]
            return
        if self._known is None:
            self._known = {}
            for each, value in side:
                self._known.setdefault(each, []).append(value)
        yield index, self._known.get(index) == [number]


def random_keys(
    p: beam.Pipeline,
    count: int,
    *,
    markers: Iterable[str | None],
    nth: int,
    late_reader: bool,
    late_marker: str | None = None,
) -> None:
    """Three levels that hash each element somewhere else in each run; none may get lost.

    Args:
        p: to build into.
        count: of elements.
        markers: one for each level; where it is a path, an executor dies there.
        nth: element of a task at which it dies.
        late_reader: read the elements again in a later segment.
        late_marker: where it is a path, an executor dies in that segment.
    """
    here = p | beam.Create(range(count)) | beam.Reshuffle()
    for level, marker in enumerate(markers):
        here = (
            here
            | f"Key{level}" >> beam.ParDo(RandomKey(40))
            | f"Group{level}" >> beam.GroupByKey()
            | f"Ungroup{level}" >> beam.FlatMap(lambda pair: pair[1])
            | f"Kill{level}" >> beam.ParDo(KillsItsExecutor(marker, nth))
            | f"Count{level}" >> beam.ParDo(Counted(f"level {level}"))
        )
    if late_reader:
        size = here | "Size" >> beam.combiners.Count.Globally()
        here = (
            here
            | "Late" >> beam.Map(lambda element, _: element, beam.pvalue.AsSingleton(size))
            | "KillLate" >> beam.ParDo(KillsItsExecutor(late_marker, nth))
            | "CountLate" >> beam.ParDo(Counted("late"))
        )
    _check_all(here, count)


def mixed_attempts(p: beam.Pipeline, count: int, *, folder: str, tasks: int) -> None:
    """Tasks that read random keys, the last of them after an executor has died."""
    here = (
        p
        | beam.Create(range(count))
        | beam.Reshuffle()
        | beam.ParDo(RandomKey(count))
        | beam.GroupByKey()
        | "Ungroup" >> beam.FlatMap(lambda pair: pair[1])
        | "Kill" >> beam.ParDo(LastKillsItsExecutor(folder, tasks))
        | "Count" >> beam.ParDo(Counted("counted"))
    )
    _check_all(here, count)


class CountsItsHost(beam.DoFn):  # type: ignore[misc]
    """Takes its time, and counts the element under the name of the executor's host."""

    def setup(self) -> None:
        arguments = Path(f"/proc/{executor_of_this_worker()}/cmdline").read_text().split("\0")
        host = arguments[arguments.index("--hostname") + 1]
        self._counter = Metrics.counter("integration", host)

    def process(self, element: int) -> None:
        time.sleep(0.3)
        self._counter.inc()


def on_hosts(p: beam.Pipeline, count: int) -> None:
    """Elements that one task makes and many take."""
    _ = p | beam.Create(range(count)) | beam.Reshuffle() | beam.ParDo(CountsItsHost())


def large_side_input(p: beam.Pipeline, megabytes: int) -> None:
    """Look up in a side input of that size, and read all of it."""
    parts = p | "Parts" >> beam.Create(range(megabytes)) | "Spread" >> beam.Reshuffle()
    entries = parts | beam.FlatMap(_megabyte).with_output_types(tuple[int, bytes])
    _ = (
        p
        | "Keys" >> beam.Create(range(200))
        | "Spread keys" >> beam.Reshuffle()
        | "Look up" >> beam.FlatMap(_values_of, megabytes, beam.pvalue.AsMultiMap(entries))
        | "Count looked up" >> beam.ParDo(Counted("looked up"))
    )
    _ = (
        p
        | "Twice" >> beam.Create([1, 2])
        | "Spread twice" >> beam.Reshuffle()
        | "Read through" >> beam.Map(_check_whole, megabytes, beam.pvalue.AsIter(entries))
        | "Count read through" >> beam.ParDo(Counted("read through"))
    )


def _megabyte(part: int) -> Iterator[tuple[int, bytes]]:
    """A thousand entries: the keys from 0, with values that say key and part."""
    return ((key, b"%d of %d;" % (key, part) + b"x" * 1000) for key in range(1000))


def _values_of(key: int, parts: int, entries: Any) -> Iterator[bytes]:
    found = sorted(value.partition(b";")[0] for value in entries[key])
    if found != sorted(b"%d of %d" % (key, part) for part in range(parts)):
        raise ValueError(f"{key}: {found}")
    if list(entries[key + 1000]):
        raise ValueError(f"{key + 1000} is no key")
    yield from found[:2]


def _check_whole(element: int, parts: int, entries: Any) -> int:
    count = size = 0
    for key, value in entries:
        count += 1
        size += key + len(value.partition(b";")[2])
    if (count, size) != (1000 * parts, parts * (sum(range(1000)) + 1000 * 1000)):
        raise ValueError(f"{count} entries, {size}")
    return element


def _check_all(indexes: beam.PCollection, count: int) -> None:
    """Every index once: the sums of these differ otherwise, whatever was lost or doubled."""
    facts = indexes | "Add" >> beam.CombineGlobally(_AddUp())
    expected = (count, sum(range(count)), sum(index**3 for index in range(count)))
    assert_that(facts, equal_to([expected]), label="all of them")


class _AddUp(beam.CombineFn):  # type: ignore[misc]
    """Count, sum and sum of cubes."""

    def create_accumulator(self) -> tuple[int, int, int]:
        return 0, 0, 0

    def add_input(self, sums: tuple[int, int, int], index: int) -> tuple[int, int, int]:
        return sums[0] + 1, sums[1] + index, sums[2] + index**3

    def merge_accumulators(self, parts: Iterable[tuple[int, int, int]]) -> tuple[int, int, int]:
        first, second, third = zip(*parts, strict=True)
        return sum(first), sum(second), sum(third)

    def extract_output(self, sums: tuple[int, int, int]) -> tuple[int, int, int]:
        return sums


def counters(result: Any, *, committed: bool = True) -> dict[str, int]:
    """Return the values of the counters of ``Counted``."""
    return {
        found.key.metric.name: found.committed if committed else found.attempted
        for found in result.metrics().query()["counters"]
        if found.key.metric.namespace == "integration"
    }
