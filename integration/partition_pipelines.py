"""Full-window partitions of random elements, which check that they stay what they are.

A separate module: executors import it by this name.
"""

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsSingleton

from beam_spark_runner.transforms import FullWindowPartition
from integration.pipelines import Counted, KillsItsExecutor, kill_this_executor_once
from integration.strikes import executor_of_this_worker
from integration.waiting import wait_until

SMALL_SORTS = "--sort_partition_memory=16k"
"""A partition of some hundred elements is sorted in files."""
PLACES = ("making", "early", "map", "aggregate", "sort", "later")
"""Where an executor may die."""


class Marks(beam.DoFn):  # type: ignore[misc]
    """Pairs each element with what its task attempt has drawn: its partition, from now on."""

    def start_bundle(self) -> None:
        self._mark = uuid.uuid4().hex

    def process(self, element: Any) -> Iterator[tuple[str, Any]]:
        yield self._mark, element


class Listed(beam.DoFn):  # type: ignore[misc]
    """For ``map_partition``: a partition as a list, in the order in which it came.

    Args:
        marker: where it is a path, an executor dies while the partition arrives.
        nth: record at which it dies.
    """

    def __init__(self, marker: str | None = None, nth: int = 1) -> None:
        super().__init__()
        self._marker = marker
        self._nth = nth

    def process(self, records: Iterable[Any]) -> Iterator[list[Any]]:
        listed = []
        for record in records:
            listed.append(record)
            if self._marker is not None and len(listed) == self._nth:
                kill_this_executor_once(self._marker)
        yield listed


class ListedByCombineFn(beam.CombineFn):  # type: ignore[misc]
    """The same for ``aggregate``."""

    def __init__(self, marker: str | None, nth: int) -> None:
        super().__init__()
        self._marker = marker
        self._nth = nth

    def create_accumulator(self) -> list[Any]:
        return []

    def add_input(self, accumulator: list[Any], element: Any) -> list[Any]:
        accumulator.append(element)
        if self._marker is not None and len(accumulator) == self._nth:
            kill_this_executor_once(self._marker)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        raise AssertionError("accumulators are never merged")

    def extract_output(self, accumulator: list[Any]) -> list[Any]:
        return accumulator


class FailsOnce(beam.DoFn):  # type: ignore[misc]
    """For ``map_partition``: as ``Listed``, but the first partition of all fails."""

    def __init__(self, marker: str) -> None:
        super().__init__()
        self._marker = marker

    def process(self, records: Iterable[Any]) -> Iterator[list[Any]]:
        listed = []
        for record in records:
            listed.append(record)
            if len(listed) == 50 and not os.path.exists(self._marker):
                Path(self._marker).touch()
                raise ValueError("not this time")
        yield listed


def read_partitions(
    p: beam.Pipeline,
    count: int,
    tasks: int,
    *,
    markers: Mapping[str, str] | None = None,
    nth: int = 50,
    fails_once: str | None = None,
) -> None:
    """Read the partitions of a step with all functions, in three Spark jobs that follow each other.

    The elements of a partition have the same mark, which another attempt at their task would draw
    again: all readers have to see the same partitions, and all elements. Counts "checked".

    Args:
        p: to build into.
        count: of elements; some hundred for each task.
        tasks: as many as ``--parallelism`` says.
        markers: a place of ``PLACES`` -> where it is a path, an executor dies there.
        nth: element of a task at which it dies.
        fails_once: a path; the function of ``map_partition`` raises once, and makes it.
    """
    at = dict.fromkeys(PLACES) | dict(markers or {})
    window = FullWindowPartition()
    made = (
        p
        | beam.Create(range(count))
        | beam.Reshuffle()
        | "Mark" >> beam.ParDo(Marks()).with_output_types(tuple[str, int])
        | "Kill making"
        >> beam.ParDo(KillsItsExecutor(at["making"], nth)).with_output_types(tuple[str, int])
    )
    early = made | "early" >> window.map_partition(Listed(at["early"], nth))
    # What follows is in a second job, which reads what the first one has stored; then in a third.
    stored = _after(early, made, "stored")
    mapped: Any = Listed(at["map"], nth) if fails_once is None else FailsOnce(fails_once)
    in_order = stored | "in order" >> window.sort_partition(1)
    late = stored | "mapped" >> window.map_partition(mapped)
    stored_still = _after(late, made, "stored still")
    readers = {
        "early": early,
        "late": late,
        "aggregated": stored | window.aggregate(ListedByCombineFn(at["aggregate"], nth)),
        "sorted": in_order | "sorted" >> window.map_partition(Listed(at["sort"], nth)),
        "largest": stored | window.reduce(max),
        "later": stored_still | "later" >> window.map_partition(Listed(at["later"], nth)),
    }
    whole = {
        name: each
        | f"All of {name}" >> beam.combiners.ToList()
        | f"Key of {name}" >> beam.Map(lambda listed: (0, listed))
        for name, each in readers.items()
    }
    _ = (
        whole
        | beam.CoGroupByKey()
        | "Check" >> beam.Map(_check, count, tasks)
        | beam.ParDo(Counted("checked"))
    )


def _after(first: beam.PCollection, then: beam.PCollection, label: str) -> beam.PCollection:
    """Return ``then`` for steps that begin when all of ``first`` is there."""
    size = first | f"Size for {label}" >> beam.combiners.Count.Globally()
    return then | label >> beam.Map(lambda pair, _: pair, AsSingleton(size)).with_output_types(
        tuple[str, int]
    )


def _check(grouped: tuple[int, Mapping[str, Any]], count: int, tasks: int) -> None:
    """Compare what readers have seen.

    Raises:
        ValueError: it is not the same, or not all.
    """
    _, by_reader = grouped
    seen = {name: [*partitions] for name, (partitions,) in by_reader.items()}
    for partition in seen["sorted"]:
        values = [value for _, value in partition]
        if values != sorted(values):
            raise ValueError(f"{len(values)} elements are in another order")
    largest = sorted(map(tuple, seen.pop("largest")))
    partitions = _normal(seen["early"])
    for name, others in seen.items():
        if _normal(others) != partitions:
            raise ValueError(f"{name} has seen other partitions: {_sizes(others)}")
    if len(partitions) != tasks:
        raise ValueError(f"{len(partitions)} partitions of {tasks} tasks")
    with_elements = [partition for partition in partitions if partition]
    marks = [{mark for mark, _ in partition} for partition in with_elements]
    if any(len(each) != 1 for each in marks) or len(set.union(*marks)) != len(marks):
        raise ValueError(f"partitions were mixed: {[*map(len, marks)]}")
    if largest != sorted(max(partition) for partition in with_elements):
        raise ValueError(f"other partitions were reduced: {largest}")
    if sorted(value for partition in partitions for _, value in partition) != [*range(count)]:
        raise ValueError(f"not all elements, each once: {_sizes(partitions)}")


def _normal(partitions: Iterable[Iterable[Any]]) -> list[list[tuple[str, int]]]:
    return sorted(sorted(map(tuple, partition)) for partition in partitions)


def _sizes(partitions: Iterable[Sequence[Any]]) -> list[int]:
    return sorted(map(len, partitions))


class WaitsInTheMiddle(beam.DoFn):  # type: ignore[misc]
    """Passes elements on. After the first one of a task it says so, and waits for ``go``.

    That is a file, with the text of an error that is then raised, or without.

    Args:
        folder: for the files.
    """

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def start_bundle(self) -> None:
        self._waits = True

    def process(self, element: Any) -> Iterator[Any]:
        yield element
        if not self._waits:
            return
        self._waits = False
        go = Path(self._folder, "go")
        # The name has the executor and the process that holds the files.
        Path(
            self._folder, f"waits.{executor_of_this_worker()}.{os.getpid()}.{uuid.uuid4().hex}"
        ).touch()
        wait_until(go.exists, str(go))
        if problem := go.read_text():
            raise ValueError(problem)


def waiting(folder: Path) -> list[tuple[int, int]]:
    """Return the tasks that have come to ``WaitsInTheMiddle``: executor and process of each."""
    names = [path.name.split(".") for path in folder.glob("waits.*")]
    return [(int(executor), int(process)) for _, executor, process, _ in names]


def sort_and_wait(p: beam.Pipeline, count: int, folder: str) -> None:
    """Sort in files, and wait while they are read. Counts "sorted"."""
    numbers = p | beam.Create(range(count)) | beam.Reshuffle() | beam.Map(lambda number: -number)
    in_order = numbers | FullWindowPartition().sort_partition(lambda number: number)
    held = in_order | beam.ParDo(WaitsInTheMiddle(folder))
    listed = held | FullWindowPartition().map_partition(Listed())
    _ = listed | beam.FlatMap(_checked_order) | beam.ParDo(Counted("sorted"))


def _checked_order(numbers: list[int]) -> list[int]:
    if numbers != sorted(numbers):
        raise ValueError("the elements of a partition are in another order")
    return numbers
