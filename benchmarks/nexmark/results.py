"""Passes the results of a query from any process to the program that checks them, by files."""

import pickle
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam


class Result(NamedTuple):
    """An element of a query's output.

    Attributes:
        value: The value of the element.
        start: The beginning of its window, in microseconds since 1970.
        end: The exclusive end of its window, in microseconds since 1970.
        pane: The index of its pane.
    """

    value: Any
    start: int
    end: int
    pane: int


class KeepResults(beam.DoFn):  # type: ignore[misc]
    """Writes the results of each bundle to a separate file; a bundle that fails writes none."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._results: list[tuple[Any, ...]] = []

    def start_bundle(self) -> None:
        self._results = []

    def process(
        self, value: Any, window: Any = beam.DoFn.WindowParam, pane: Any = beam.DoFn.PaneInfoParam
    ) -> None:
        self._results.append((value, window.start.micros, window.end.micros, pane.index))

    def finish_bundle(self) -> None:
        if self._results:
            path = Path(self._folder, uuid.uuid4().hex)
            path.write_bytes(pickle.dumps(self._results, pickle.HIGHEST_PROTOCOL))
            path.rename(path.with_suffix(".results"))


def read_results(folder: Path) -> Iterator[Result]:
    """Yield the results that were written to a folder, in no particular order."""
    for path in folder.glob("*.results"):
        yield from (Result(*each) for each in pickle.loads(path.read_bytes()))
