"""A stream of numbers that goes as far as a test lets it, for job servers that die."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.metrics import Metrics
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Duration

from tests.harness.processes import wait_for

SUM = "sum"
POLL_S = 0.05


class _Range(RestrictionProvider):  # type: ignore[misc]
    def initial_restriction(self, most: int) -> OffsetRange:
        return OffsetRange(0, most)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, _: int, restriction: OffsetRange) -> int:
        return int(restriction.size())

    def truncate(self, _: int, __: OffsetRange) -> None:
        """Nothing is left to read once the stream is drained."""


class _Numbers(beam.DoFn):  # type: ignore[misc]
    """Emits the numbers below that in a file, and polls it for more."""

    def __init__(self, limit: str) -> None:
        super().__init__()
        self._limit = limit

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self,
        _: int,
        tracker: Any = beam.DoFn.RestrictionParam(_Range()),  # noqa: B008
    ) -> Iterator[int]:
        number = tracker.current_restriction().start
        while number < int(Path(self._limit).read_text()):
            if not tracker.try_claim(number):
                return
            yield number
            number += 1
        tracker.defer_remainder(Duration(POLL_S))


class _Total(beam.DoFn):  # type: ignore[misc]
    """Adds up the numbers, and notes each sum in a file."""

    TOTAL = ReadModifyWriteStateSpec("total", beam.coders.VarIntCoder())

    def __init__(self, notes: str) -> None:
        super().__init__()
        self._notes = notes

    def process(
        self, pair: tuple[str, int], total: Any = beam.DoFn.StateParam(TOTAL)
    ) -> Iterator[tuple[str, int]]:
        Metrics.counter("tests", "seen").inc()
        total.write((total.read() or 0) + pair[1])
        with open(self._notes, "a") as notes:
            notes.write(f"{total.read()}\n")
        yield pair


class Numbers:
    """The stream of the numbers below ``most``, whose sum is written at its end.

    Args:
        folder: For what user code and this process write; it is made.
        most: How many numbers there are.
    """

    def __init__(self, folder: Path, most: int = 100) -> None:
        folder.mkdir(parents=True)
        self._folder, self.most = folder, most
        self.let_through(0)

    def let_through(self, limit: int | None = None) -> None:
        """Let the stream continue to a number. None: to its end."""
        part = self._folder / "limit.part"
        part.write_text(str(self.most if limit is None else limit))
        part.rename(self._folder / "limit")

    def build(self, p: beam.Pipeline, poison: int | None = None) -> None:
        """Build the stream.

        Args:
            p: The pipeline.
            poison: The number at which user code fails. None: it does not.
        """

        def pair(number: int) -> TimestampedValue:
            if number == poison:
                raise ValueError("a poisoned number")
            return TimestampedValue((f"key {number % 3}", number), 1)

        numbers = p | beam.Create([self.most]) | beam.ParDo(_Numbers(str(self._folder / "limit")))
        pairs = numbers | "pair" >> beam.Map(pair)
        totals = pairs | "total" >> beam.ParDo(_Total(str(self._folder / "notes")))
        sums = totals | beam.WindowInto(FixedWindows(60)) | beam.CombinePerKey(sum)
        (
            sums
            | beam.MapTuple(lambda k, s: f"{k}: {s}")
            | beam.io.WriteToText(str(self._folder / SUM), num_shards=1)
        )

    def notes(self) -> list[str]:
        """Return all sums that user code has noted, in all attempts."""
        path = self._folder / "notes"
        return path.read_text().splitlines() if path.exists() else []

    def wait_for_notes(self, count: int) -> None:
        """Wait until user code has processed so many numbers."""
        wait_for(lambda: len(self.notes()) >= count)

    def check(self) -> None:
        """Check what the stream has written at its end."""
        (file,) = (each for each in self._folder.glob(f"{SUM}*") if each.is_file())
        sums = [sum(range(rest, self.most, 3)) for rest in range(3)]
        expected = [f"key {rest}: {each}" for rest, each in enumerate(sums)]
        assert sorted(file.read_text().splitlines()) == expected
