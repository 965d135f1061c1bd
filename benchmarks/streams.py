"""Streaming pipelines: ``python -m benchmarks.streams epochs latency backlog state timers keys``.

Times are measured by user code at the end of the pipeline. Machines are shared and noisy: ratios
of one run are meaningful, other figures only on a quiet machine. ``PRISM`` in the environment is
the path of a Prism, on which ``backlog`` runs, too.
"""

import argparse
import contextlib
import itertools
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import psutil
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.prism_runner import PrismRunner
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.userstate import CombiningValueStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, GlobalWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.spark.session.launch import start_classic
from tests.spark.random_streams.references import prism

_SHARDS = 4
_TIMERS = 1_000_000
_KEYS = 10_000_000
_AFTER_ALL = _KEYS  # event time, in seconds


class Notes(beam.DoFn):  # type: ignore[misc]
    """Records when elements arrive."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def process(self, element: Any) -> None:
        with self._path.open("a") as stream:
            stream.write(f"{time.time()} {element[0]}\n")


def noted(path: Path) -> list[list[float]]:
    """Return the times at which elements arrived, and their first fields."""
    return [[float(each) for each in line.split()] for line in path.read_text().splitlines()]


def run(session: Any, build: Callable[[beam.Pipeline], Any], *flags: str) -> float:
    """Run a pipeline; return the seconds."""
    return _run_on(SparkPortableRunner(session), build, *flags)


def _run_on(runner: Any, build: Callable[[beam.Pipeline], Any], *flags: str) -> float:
    began = time.monotonic()
    with beam.Pipeline(runner=runner, options=PipelineOptions(list(flags))) as pipeline:
        build(pipeline)
    return time.monotonic() - began


def _percentiles(label: str, seconds: Iterable[float]) -> None:
    cuts = statistics.quantiles(seconds, n=100)
    print(f"{label}: p50 {cuts[49] * 1e3:.0f} ms, p99 {cuts[98] * 1e3:.0f} ms")


def at_once() -> beam.WindowInto:
    """Return a window that fires for each element."""
    return beam.WindowInto(
        GlobalWindows(),
        trigger=Repeatedly(AfterCount(1)),
        accumulation_mode=AccumulationMode.DISCARDING,
    )


def through_levels(values: Any, levels: int) -> Any:
    """Group elements again and again, so that a pipeline has so many levels."""
    for level in range(levels - 1):
        values = (
            values
            | f"group {level}" >> beam.GroupByKey()
            | f"take {level}" >> beam.FlatMap(lambda group: [(each, each) for each in group[1]])
        )
    return values


def epochs(session: Any, folder: Path) -> None:
    """Measure epochs that have next to nothing to do; the first hundred are warm-up."""
    for levels in (3, 5):
        path = folder / f"epochs-{levels}"

        def build(p: beam.Pipeline, levels: int = levels, path: Path = path) -> None:
            events = TestStream().with_output_types(tuple[int, int])
            for number in range(300):
                events.add_elements([TimestampedValue((number, number), number)])
            events.advance_watermark_to_infinity()
            windowed = p | events | at_once()
            through_levels(windowed, levels) | beam.ParDo(Notes(path))

        run(session, build)
        times = [at for at, _ in noted(path)]
        between = [later - at for at, later in itertools.pairwise(times[100:])]
        _percentiles(f"an epoch of {levels} levels", between)


def latency(session: Any, folder: Path) -> None:
    """Measure the latency through three levels, with 1,000 elements per second for a minute."""
    path = folder / "latency"

    def build(p: beam.Pipeline) -> None:
        began = time.time() + 5
        ticks = p | PeriodicImpulse(began, began + 60, 0.001)
        now = ticks | beam.Map(lambda at: (float(at), float(at)))
        through_levels(now | at_once(), 3) | beam.ParDo(Notes(path))

    run(session, build, "--batch_interval_millis=200")
    arrived = sorted(noted(path), key=lambda each: each[1])
    print(f"{len(arrived)} elements")
    _percentiles("from element to sink", [at - due for at, due in arrived[len(arrived) // 6 :]])


class _Ranges(RestrictionProvider):  # type: ignore[misc]
    def initial_restriction(self, share: tuple[int, int]) -> OffsetRange:
        return OffsetRange(0, share[1])

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, share: tuple[int, int], restriction: OffsetRange) -> int:
        return int(restriction.size())


_RESTRICTION = beam.DoFn.RestrictionParam(_Ranges())
_WATERMARK = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider())


class _Source(beam.DoFn):  # type: ignore[misc]
    """Emits pairs of a key and 1, a million for each minute of event time."""

    def __init__(self, keys: int) -> None:
        self._keys = keys

    def process(
        self, share: tuple[int, int], tracker: Any = _RESTRICTION, watermark: Any = _WATERMARK
    ) -> Iterator[TimestampedValue]:
        shard, _ = share
        number = tracker.current_restriction().start
        while tracker.try_claim(number):
            second = number * _SHARDS * 60 // 1_000_000
            if number % 1000 == 0:
                watermark.set_watermark(Timestamp(second))
            yield TimestampedValue(((number * _SHARDS + shard) * 7919 % self._keys, 1), second)
            number += 1


class _UnboundedSource(_Source):
    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self, share: tuple[int, int], tracker: Any = _RESTRICTION, watermark: Any = _WATERMARK
    ) -> Iterator[TimestampedValue]:
        return super().process(share, tracker, watermark)


def _windows(pipeline: beam.Pipeline, kind: type[_Source], size: int, keys: int) -> Any:
    shares = pipeline | beam.Create([(shard, size // _SHARDS) for shard in range(_SHARDS)])
    pairs = shares | beam.ParDo(kind(keys)).with_output_types(tuple[int, int])
    return pairs | beam.WindowInto(FixedWindows(60))


def _side_by_side(session: Any, label: str, size: int, keys: int, step: Any) -> None:
    """Run a step alternately in batch and in epochs; the first run of each is warm-up."""
    seconds: dict[type[_Source], list[float]] = {_Source: [], _UnboundedSource: []}
    for _ in range(3):
        for kind, taken in seconds.items():

            def build(p: beam.Pipeline, kind: type[_Source] = kind) -> None:
                _windows(p, kind, size, keys) | step | beam.Map(len)

            taken.append(run(session, build))
    batch, stream = (min(taken[1:]) for taken in seconds.values())
    print(
        f"{label}, {size:,} elements: batch {batch:.1f} s, stream {stream:.1f} s: "
        f"{batch / stream:.0%} of the rate of batch"
    )


def backlog(session: Any, folder: Path) -> None:
    """Measure sums per key in windows of a minute, of a source that has all elements at once."""
    label, step = "sums of 10,000 keys", beam.CombinePerKey(sum)
    _side_by_side(session, label, 20_000_000, 10_000, step)
    location = prism()
    if location is not None:
        _compare_with_prism(session, label, 2_000_000, 10_000, step, location)


def _compare_with_prism(
    session: Any, label: str, size: int, keys: int, step: Any, location: str
) -> None:
    """Run a step in epochs, and on Prism, in turns; the first run of each warms."""

    def build(p: beam.Pipeline) -> None:
        _windows(p, _UnboundedSource, size, keys) | step | beam.Map(len)

    flags = (f"--prism_location={location}", "--prism_log_level=error")
    ours, peer = (
        min(seconds)
        for seconds in zip(
            *((run(session, build), _run_on(PrismRunner(), build, *flags)) for _ in range(2)),
            strict=True,
        )
    )
    print(
        f"{label}, {size:,} elements: stream {ours:.1f} s, Prism {peer:.1f} s: "
        f"{peer / ours:.1f} times its rate"
    )


class _Sums(beam.DoFn):  # type: ignore[misc]
    """Sums the values of a key, and emits the sum when its window ends."""

    SUM = CombiningValueStateSpec("sum", sum)
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[int, int],
        window: Any = beam.DoFn.WindowParam,
        total: Any = beam.DoFn.StateParam(SUM),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        total.add(pair[1])
        end.set(window.end)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def give(
        self, key: Any = beam.DoFn.KeyParam, total: Any = beam.DoFn.StateParam(SUM)
    ) -> Iterator[tuple[int, int]]:
        yield key, total.read()


def state(session: Any, folder: Path) -> None:
    """Measure a stateful DoFn with a timer."""
    _side_by_side(session, "state of 100,000 keys", 5_000_000, 100_000, beam.ParDo(_Sums()))


def _many(pair: tuple[int, int]) -> Iterator[tuple[int, int]]:
    return ((number, 1) for number in range(pair[0], _TIMERS, _SHARDS))


def timers(session: Any, folder: Path) -> None:
    """Measure how long commits wait for timers that are all due at once."""

    def build(p: beam.Pipeline) -> None:
        events = TestStream().with_output_types(tuple[int, int])
        events.add_elements([TimestampedValue((shard, 1), 0) for shard in range(_SHARDS)])
        events.advance_watermark_to(60).advance_watermark_to_infinity()
        many = p | events | beam.FlatMap(_many).with_output_types(tuple[int, int])
        many | beam.WindowInto(FixedWindows(60)) | beam.ParDo(_Sums()) | beam.Map(len)

    for flags in ((), ("--unaligned_splittable_timers",)):
        checkpoints = folder / f"checkpoints-{len(flags)}"
        commits, ended = [time.monotonic()], threading.Event()
        watcher = threading.Thread(target=_watch, args=(checkpoints, commits, ended))
        watcher.start()
        try:
            run(session, build, f"--checkpoint_dir={checkpoints}", *flags)
        finally:
            ended.set()
        watcher.join()
        # The first epoch reads and stores the elements.
        longest = max(later - at for at, later in itertools.pairwise(commits[1:]))
        print(f"{_TIMERS:,} timers {' '.join(flags)}: a commit waits for {longest:.1f} s at most")


class _FewSums(_Sums):
    """Sums the values of each key; a tenth of the keys emits the sum, after all elements."""

    def process(
        self,
        pair: tuple[int, int],
        window: Any = beam.DoFn.WindowParam,
        total: Any = beam.DoFn.StateParam(_Sums.SUM),
        end: Any = beam.DoFn.TimerParam(_Sums.END),
    ) -> None:
        total.add(pair[1])
        if pair[0] % 10 == 0:
            end.set(_AFTER_ALL)


class _NotesFirst(beam.DoFn):  # type: ignore[misc]
    """Creates a file when the first element arrives."""

    def __init__(self, file: Path) -> None:
        self._file, self._is_first = file, True

    def process(self, element: object) -> None:
        if self._is_first:
            self._is_first = False
            with contextlib.suppress(FileExistsError):
                self._file.touch(exist_ok=False)


def keys(session: Any, folder: Path) -> None:
    """Measure very many keys in state, a tenth of which has a timer; all timers are due at once."""
    first = folder / "first timer"

    def build(p: beam.Pipeline) -> None:
        shares = p | beam.Create([(shard, _KEYS // _SHARDS) for shard in range(_SHARDS)])
        pairs = shares | beam.ParDo(_UnboundedSource(_KEYS)).with_output_types(tuple[int, int])
        pairs | beam.ParDo(_FewSums()) | beam.ParDo(_NotesFirst(first))

    flags = ("--unaligned_splittable_timers", f"--checkpoint_dir={folder / 'keys'}")
    commits, ended, peaks = [time.monotonic()], threading.Event(), {"": 0}
    watchers = [
        threading.Thread(target=_watch, args=(folder / "keys", commits, ended)),
        threading.Thread(target=_watch_memory, args=(peaks, ended)),
    ]
    for each in watchers:
        each.start()
    try:
        seconds = run(session, build, *flags)
    finally:
        ended.set()
    for each in watchers:
        each.join()
    fires_s = time.monotonic() - (time.time() - first.stat().st_mtime)
    reading: list[float] = []
    firing: list[float] = []  # without the epoch in which the input ends and the first one fires
    for at, later in itertools.pairwise(commits[1:]):
        (reading if at < fires_s else firing).append(later - at)
    print(
        f"{_KEYS:,} keys, {_KEYS // 10:,} timers: {seconds:.0f} s; the largest worker had "
        f"{max(peaks.values()) >> 20} MB without pages of files"
    )
    for what, took in (("reads its backlog", reading), ("fires its timers", firing)):
        print(
            f"while it {what}: {len(took)} epochs, half of them of at most "
            f"{statistics.median(took):.1f} s, the longest of {max(took):.1f} s"
        )


def _watch_memory(peaks: dict[str, int], ended: threading.Event) -> None:
    """Record the peak memory of Python processes, without pages of files."""
    while not ended.wait(0.5):
        for process in psutil.Process().children(recursive=True):
            try:
                memory = process.memory_full_info()
                if process.name() != "java":
                    held = memory.rss - memory.shared
                    peaks[str(process.pid)] = max(peaks.get(str(process.pid), 0), held)
            except psutil.Error:
                continue


def _watch(folder: Path, commits: list[float], ended: threading.Event) -> None:
    """Record when manifests appear."""
    seen: set[str] = set()
    while not ended.wait(0.02):
        names = {path.name for path in folder.rglob("*.manifest")}
        if names - seen:
            commits.append(time.monotonic())
        seen |= names


_CASES = {case.__name__: case for case in (epochs, latency, backlog, state, timers, keys)}


def main() -> int:
    """Run the cases that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[*_CASES, []], help="all, if none is named")
    arguments = parser.parse_args()
    session = start_classic("local[2]", "streams", {"spark.ui.enabled": "false"})
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.cases or _CASES:
            _CASES[name](session, Path(folder))
    session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
