"""Functions that continue with what they gave out: buffers that are filled again, open files.

Beam's harness hands each element through all fused steps before it asks for the next. Such
functions rely on that; Beam's documentation forbids some of them, and programs have them.
"""

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import IO, Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import GlobalWindow, GlobalWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from tests.spark.random_pipelines.chain import Chain


def _refilled_list(n: int) -> Iterator[list[int]]:
    batch: list[int] = []
    for part in range(n % 5 + 1):
        batch.append(n + part)
        if len(batch) == 2:
            yield batch
            batch.clear()
    if batch:
        yield batch


def _refilled_dict(n: int) -> Iterator[dict[str, int]]:
    row: dict[str, int] = {}
    for part in range(n % 3 + 1):
        row["n"] = n + part
        yield row


def _refilled_array(n: int) -> Iterator[Any]:
    buffer = np.zeros(2, dtype=np.int64)
    for part in range(n % 3 + 1):
        buffer[:] = n, part
        yield buffer


def _refilled_inside(n: int) -> Iterator[tuple[str, dict[str, list[int]]]]:
    inner: list[int] = []
    row = ("n", {"inner": inner})
    for part in range(n % 3 + 1):
        inner.append(n * part)
        yield row
        inner.clear()


def _changed_downstream(n: int) -> Iterator[list[int]]:
    """Each time the list is longer by what the step after this one has appended."""
    row = [n]
    for _ in range(n % 3 + 1):
        row.append(len(row))
        yield row


def _append(row: list[int]) -> int:
    row.append(7)
    return sum(row) + len(row)


class _SameObject(beam.DoFn):  # type: ignore[misc]
    """Returns one object from each call; from the 20th call on, if ``late``."""

    def __init__(self, *, late: bool) -> None:
        self._row = [0]
        self._new_ones = 19 if late else 0

    def process(self, n: int) -> list[list[int]]:
        if self._new_ones:
            self._new_ones -= 1
            return [[n]]
        self._row[0] = n
        return [self._row]


class _Rarely(beam.DoFn):  # type: ignore[misc]
    """Only every tenth call gives anything, and each time the same list."""

    def __init__(self) -> None:
        self._gathered: list[int] = []

    def process(self, n: int) -> Iterator[list[int]]:
        if n % 10 == 0:
            self._gathered.append(n)
            yield self._gathered
            self._gathered.clear()


class _SameObjectOfMap:
    def __init__(self) -> None:
        self._row = {"n": [0]}

    def __call__(self, n: int) -> dict[str, list[int]]:
        self._row["n"][0] = n
        return self._row


def _one_after_the_other(give: Any, use: Callable[[Any], int]) -> Chain:
    """Two steps that every runner fuses, the second of which has seen what it is given."""
    return Chain(give, beam.Map(use).with_output_types(int))


REUSING: dict[str, Callable[[int], Chain]] = {
    "list": lambda _: _one_after_the_other(beam.FlatMap(_refilled_list), sum),
    "dict": lambda _: _one_after_the_other(beam.FlatMap(_refilled_dict), lambda row: row["n"]),
    "array": lambda _: _one_after_the_other(
        beam.FlatMap(_refilled_array), lambda array: int(array.sum())
    ),
    "nested": lambda _: _one_after_the_other(
        beam.FlatMap(_refilled_inside), lambda row: sum(row[1]["inner"])
    ),
    "object": lambda _: _one_after_the_other(
        beam.ParDo(_SameObject(late=False)), lambda row: row[0]
    ),
    "object, late": lambda _: _one_after_the_other(
        beam.ParDo(_SameObject(late=True)), lambda row: row[0]
    ),
    "list, rarely": lambda _: _one_after_the_other(beam.ParDo(_Rarely()), sum),
    "object of Map": lambda _: _one_after_the_other(
        beam.Map(_SameObjectOfMap()), lambda row: row["n"][0]
    ),
    "what is changed downstream": lambda _: _one_after_the_other(
        beam.FlatMap(_changed_downstream), _append
    ),
}


class Batches(beam.DoFn):  # type: ignore[misc]
    """Gives its list out when it is full, and clears it then."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._batch: list[int] = []

    def process(self, n: int) -> Iterator[list[int]]:
        self._batch.append(n)
        if len(self._batch) == self._size:
            yield self._batch
            self._batch.clear()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._batch:
            yield WindowedValue(self._batch, Timestamp(0), (GlobalWindow(),))
            self._batch = []


def batched(number: int) -> Chain:
    """Batch numbers by hand, and count how often each is in a batch.

    What is in one batch depends on the runner, and so do the times and panes of batches.
    """
    return _batched(size=(2, 3, 10, 10, 25)[number - 1])


def batched_many(number: int) -> Chain:
    """The same with batches as large as in programs, and each number so often that they fill."""
    return _batched(size=(40, 64, 100, 100, 128)[number - 1], copies=25)


def _batched(size: int, copies: int = 1) -> Chain:
    return Chain(
        beam.FlatMap(lambda n: [TimestampedValue(n, 0)] * copies).with_output_types(int),
        beam.WindowInto(GlobalWindows()),
        beam.ParDo(Batches(size)),
        beam.FlatMap(lambda batch: list(batch)).with_output_types(int),
        beam.combiners.Count.PerElement(),
    )


class OpenFile:
    """A file that is open, with its number in it; Beam pickles elements to sample their sizes."""

    def __init__(self, file: IO[str]) -> None:
        self._file: IO[str] | None = file

    def number(self) -> int:
        assert self._file is not None, "this is a copy, not what the generator has given out"
        return int(self._file.read())

    def __getstate__(self) -> dict[str, Any]:
        return {"_file": None}


class _ReducedFile(OpenFile):
    """The same; it says itself how it is pickled, by which the harness knows such objects."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _ReducedFile, (None,)


def _files(kind: type[OpenFile]) -> Callable[[int], Iterator[OpenFile]]:
    def opened(n: int) -> Iterator[OpenFile]:
        for part in range(n % 2 + 1):
            with tempfile.TemporaryFile("w+") as file:
                file.write(str(n + part))
                file.seek(0)
                yield kind(file)

    return opened


@contextlib.contextmanager
def _row(n: int) -> Iterator[dict[str, int]]:
    row = {"n": n}
    try:
        yield row
    finally:
        row.clear()


def _within_a_context(n: int) -> Iterator[dict[str, int]]:
    with _row(n) as row:
        yield row


_LOCK = threading.Lock()


def _under_a_lock(n: int) -> Iterator[int]:
    for part in range(n % 2 + 1):
        with _LOCK:
            yield n + part


def _checked(n: int) -> int:
    return n if _LOCK.locked() else -1


LENDING: dict[str, Callable[[int], Chain]] = {
    "files": lambda _: _one_after_the_other(beam.FlatMap(_files(OpenFile)), OpenFile.number),
    "reduced files": lambda _: _one_after_the_other(
        beam.FlatMap(_files(_ReducedFile)), OpenFile.number
    ),
    "context": lambda _: _one_after_the_other(
        beam.FlatMap(_within_a_context), lambda row: row["n"]
    ),
    "lock": lambda _: _one_after_the_other(beam.FlatMap(_under_a_lock), _checked),
}
