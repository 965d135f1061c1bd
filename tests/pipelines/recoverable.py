"""Batch pipelines that can be continued, and their jobs."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io import fileio
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    CombiningValueStateSpec,
    TimerSpec,
    on_timer,
)

from beam_spark_runner import SparkPortableRunner

Build = Callable[[beam.Pipeline, Path], Any]


class Job:
    """A job whose folder outlives its starts.

    Args:
        spark: The session, or None.
        folder: For the folder of the job, and what the pipeline writes.
        build: Builds the pipeline.
        flags: Options.
    """

    def __init__(self, spark: Any, folder: Path, build: Build, *flags: str) -> None:
        self._spark, self._build = spark, build
        self.folder, self.out = folder / "job", folder / "out"
        self.out.mkdir(parents=True)
        self._flags = [
            "--batch_job_recovery",
            f"--checkpoint_dir={self.folder}",
            "--progress=off",
            *flags,
        ]

    @property
    def own(self) -> Path:
        """The subfolder of the job, once it was submitted."""
        (own,) = self.folder.glob("job-*")
        return own

    def start(self, *flags: str, build: Build | None = None) -> Any:
        """Run the pipeline, and return its result."""
        options = PipelineOptions([*self._flags, *flags])
        p = beam.Pipeline(runner=SparkPortableRunner(self._spark), options=options)
        (build or self._build)(p, self.out)
        result = p.run()
        assert result.wait_until_finish() == PipelineState.DONE
        return result

    def lines(self) -> list[str]:
        """Return what the pipeline has written: without the names of its files."""
        files = [file for file in self.out.rglob("*") if file.is_file() and file.stat().st_size]
        return sorted(line for file in files for line in file.read_text().splitlines())

    def names(self) -> list[str]:
        """Return the names of the files of the job's folder."""
        if not self.folder.exists():
            return []
        files = [file for file in self.folder.rglob("*") if file.is_file()]
        return sorted(str(file.relative_to(self.folder)) for file in files)


class Counted(beam.DoFn):  # type: ignore[misc]
    """Counts elements by a metric."""

    def process(self, element: Any) -> Iterator[Any]:
        beam.metrics.Metrics.counter("tests", "counted").inc()
        yield element


def groups_and_side_input(p: beam.Pipeline, out: Path) -> None:
    """Two exchanges, a side input that all of the rest waits for, and a file sink."""
    sums = (
        p
        | beam.Create(range(40))
        | "pairs" >> beam.Map(lambda x: (x % 5, x))
        | beam.GroupByKey()
        | "sums" >> beam.MapTuple(lambda key, values: (key, sum(values)))
        | beam.ParDo(Counted())
    )
    total = sums | beam.Values() | beam.CombineGlobally(sum)
    whole = beam.pvalue.AsSingleton(total)
    shares = sums | "shares" >> beam.Map(lambda x, of: f"{x} {of}", whole)
    shares | beam.io.WriteToText(str(out / "shares"))


def a_random_step_with_two_readers(p: beam.Pipeline, out: Path) -> None:
    """What both readers get of the random step must be the same."""
    drawn = (
        p
        | beam.Create(range(12))
        | beam.Reshuffle()
        | "draw" >> beam.Map(lambda x: (x, random.random()))
    )
    for reader in ("one", "two"):
        by_key = drawn | f"pairs {reader}" >> beam.Map(lambda x: (x[0] % 3, x))
        lines = (
            by_key
            | f"group {reader}" >> beam.GroupByKey()
            | f"flatten {reader}" >> beam.FlatMapTuple(lambda key, values: map(str, values))
        )
        lines | f"write {reader}" >> beam.io.WriteToText(str(out / reader))


def state_and_timers(p: beam.Pipeline, out: Path) -> None:
    lines = p | beam.Create([(x % 4, x) for x in range(30)]) | beam.ParDo(Summed())
    lines | beam.io.WriteToText(str(out / "sums"), num_shards=2)


class Summed(beam.DoFn):  # type: ignore[misc]
    SUM = CombiningValueStateSpec("sum", sum)
    KEY = CombiningValueStateSpec("key", max)
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[int, int],
        total: Any = beam.DoFn.StateParam(SUM),
        key: Any = beam.DoFn.StateParam(KEY),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        beam.metrics.Metrics.counter("tests", "counted").inc()
        key.add(pair[0])
        total.add(pair[1])
        end.set(beam.utils.timestamp.MAX_TIMESTAMP.predecessor())

    @on_timer(END)  # type: ignore[untyped-decorator]
    def finish(
        self,
        total: Any = beam.DoFn.StateParam(SUM),
        key: Any = beam.DoFn.StateParam(KEY),
    ) -> Iterator[str]:
        yield f"{key.read()} {total.read()}"


class _Range(RestrictionProvider):  # type: ignore[misc]
    def initial_restriction(self, element: int) -> OffsetRange:
        return OffsetRange(0, element)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: int, restriction: OffsetRange) -> float:
        return float(restriction.size())


RESTRICTION = beam.DoFn.RestrictionParam(_Range())


class Counting(beam.DoFn):  # type: ignore[misc]
    """Leaves its restriction again and again."""

    def process(self, element: int, tracker: Any = RESTRICTION) -> Iterator[int]:
        position = tracker.current_restriction().start
        for _ in range(5):
            if not tracker.try_claim(position):
                return
            beam.metrics.Metrics.counter("tests", "counted").inc()
            yield position
            position += 1
        tracker.defer_remainder()


def rounds(p: beam.Pipeline, out: Path) -> None:
    numbers = p | beam.Create([17, 8]) | beam.ParDo(Counting())
    grouped = numbers | beam.Map(lambda x: (x, 1)) | beam.CombinePerKey(sum)
    grouped | "lines" >> beam.Map(str) | beam.io.WriteToText(str(out / "numbers"))


def files_by_destination(p: beam.Pipeline, out: Path) -> None:
    lines = p | beam.Create([f"{'ab'[x % 2]} {x}" for x in range(10)])
    lines | fileio.WriteToFiles(
        str(out / "files"),
        destination=lambda line: line[0],
        sink=lambda _: fileio.TextSink(),
        shards=1,
    )


PIPELINES: dict[str, tuple[Build, tuple[str, ...]]] = {
    "groups and side input": (groups_and_side_input, ()),
    "random step": (a_random_step_with_two_readers, ()),
    "state and timers": (state_and_timers, ()),
    "rounds": (rounds, ("--sdf_round_budget=0.0001",)),
    "files by destination": (files_by_destination, ()),
}
