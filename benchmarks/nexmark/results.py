"""Results of a query, on their way from any process to the program that checks them."""

import pickle
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam


class Result(NamedTuple):
    """An element that a query gives.

    Attributes:
        value: as the query makes it.
        start: of its window, in microseconds since 1970, as ``end``.
        end: exclusive.
        pane: index of its pane.
    """

    value: Any
    start: int
    end: int
    pane: int


class KeepResults(beam.DoFn):  # type: ignore[misc]
    """Writes the results of each bundle to a file of their own; a bundle that fails writes none."""

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
    """Yield what has been kept in a folder, in no order."""
    for path in folder.glob("*.results"):
        yield from (Result(*each) for each in pickle.loads(path.read_bytes()))
