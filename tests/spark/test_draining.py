"""Streaming pipelines that are drained: their sources end, and all that waits is processed."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Duration

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.core.errors import UnsupportedFeatureError
from tests.harness.processes import wait_for
from tests.spark.harvest import RARE_HARNESSES
from tests.spark.restrictions import Counting

pytestmark = pytest.mark.spark

QUICK = "--batch_interval_millis=50"
FOR_EVER = 1 << 40
HOUR_S = 3600


class Note(beam.DoFn):  # type: ignore[misc]
    """Makes an empty file for each element."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def process(self, element: Any) -> None:
        Path(self._folder, str(element).replace("/", " ")).touch()


def noted(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class EndlessTracker(OffsetRestrictionTracker):  # type: ignore[misc]
    def is_bounded(self) -> bool:
        return False


class Endless(Counting):
    """Nothing remains of it when it is drained."""

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return EndlessTracker(restriction)


class UntilTen(Counting):
    """When it is drained, it counts to ten; what is at six already counts to eleven."""

    def truncate(self, element: Any, restriction: OffsetRange) -> OffsetRange:
        return OffsetRange(restriction.start, max(10, restriction.start + 5))


def three_of(element: tuple[str, int], tracker: Any) -> Iterator[TimestampedValue]:
    """Count three numbers, and wait: for an hour after the first ones."""
    begun = tracker.current_restriction().start
    for number in range(begun, begun + 3):
        if not tracker.try_claim(number):
            return
        yield TimestampedValue((element[0], number), number)
    tracker.defer_remainder(Duration(0.3 if begun else HOUR_S))


def count(provider: Counting) -> beam.ParDo:
    class Count(beam.DoFn):  # type: ignore[misc]
        @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
        def process(
            self,
            element: tuple[str, int],
            tracker: Any = beam.DoFn.RestrictionParam(provider),  # noqa: B008
        ) -> Iterator[TimestampedValue]:
            yield from three_of(element, tracker)

    return beam.ParDo(Count())


class Looping(beam.DoFn):  # type: ignore[misc]
    """Has a timer that always sets itself again, in an hour of processing time."""

    DUE = TimerSpec("due", TimeDomain.REAL_TIME)
    SEEN = ReadModifyWriteStateSpec("seen", VarIntCoder())

    def process(
        self,
        pair: tuple[str, int],
        due: Any = beam.DoFn.TimerParam(DUE),
        seen: Any = beam.DoFn.StateParam(SEEN),
    ) -> None:
        seen.write((seen.read() or 0) + 1)
        due.set(time.time() + HOUR_S)

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def wake(
        self,
        key: Any = beam.DoFn.KeyParam,
        due: Any = beam.DoFn.TimerParam(DUE),
        seen: Any = beam.DoFn.StateParam(SEEN),
    ) -> Iterator[str]:
        due.set(time.time() + HOUR_S)
        yield f"{key} has seen {seen.read()}"


def started(spark: Any, build: Callable[[beam.Pipeline], Any], *flags: str) -> Any:
    options = PipelineOptions([QUICK, *flags])
    pipeline = beam.Pipeline(runner=SparkPortableRunner(spark=spark), options=options)
    build(pipeline)
    return pipeline.run()


def windows_and_timers(seen: Path, ended: Path) -> Callable[[beam.Pipeline], Any]:
    """Build a pipeline in which all that comes after the source waits for hours."""

    def build(p: beam.Pipeline) -> None:
        counted = count(Endless()).with_output_types(tuple[str, int])
        numbers = p | beam.Create([("a", FOR_EVER), ("b", FOR_EVER)]) | counted
        _ = numbers | "see" >> beam.ParDo(Note(seen))
        groups = numbers | beam.WindowInto(FixedWindows(HOUR_S)) | beam.GroupByKey()
        texts = groups | beam.MapTuple(lambda key, values: f"{key} {sorted(values)}")
        _ = texts | "groups" >> beam.ParDo(Note(ended))
        _ = numbers | beam.ParDo(Looping()) | "timers" >> beam.ParDo(Note(ended))

    return build


WINDOWS_AND_TIMERS = ["a [0, 1, 2]", "a has seen 3", "b [0, 1, 2]", "b has seen 3"]


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_windows_close_and_timers_fire(
    spark_session: Any, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    seen, ended = tmp_path / "seen", tmp_path / "ended"
    seen.mkdir()
    ended.mkdir()
    result = started(spark_session, windows_and_timers(seen, ended), *flags)
    wait_for(lambda: len(noted(seen)) == 6)
    assert result.drain() in ("RUNNING", "DRAINING")
    assert result.wait_until_finish() == "DRAINED"
    assert noted(ended) == WINDOWS_AND_TIMERS
    assert len(noted(seen)) == 6  # the sources have ended, since they would go on for ever


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_providers_truncate_once_what_waits_and_what_is_new(
    spark_session: Any, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """What waits for an hour counts to ten at once; no part of it is truncated again."""

    def build(p: beam.Pipeline) -> None:
        numbers = p | beam.Create([("a", FOR_EVER)]) | count(UntilTen())
        _ = numbers | beam.MapTuple(lambda key, number: number) | beam.ParDo(Note(tmp_path))

    result = started(spark_session, build, *flags)
    wait_for(lambda: len(noted(tmp_path)) == 3)
    result.drain()
    assert result.wait_until_finish() == "DRAINED"
    assert sorted(map(int, noted(tmp_path))) == list(range(10))


def test_what_an_earlier_run_has_left_is_drained(spark_session: Any, tmp_path: Path) -> None:
    """The first run is cancelled; the second one has ``--drain`` from its start."""
    seen, ended = tmp_path / "seen", tmp_path / "ended"
    seen.mkdir()
    ended.mkdir()
    build = windows_and_timers(seen, ended)
    checkpoints = f"--checkpoint_dir={tmp_path / 'checkpoints'}"
    first = started(spark_session, build, checkpoints)
    wait_for(lambda: len(noted(seen)) == 6)
    newest = max(tmp_path.glob("checkpoints/*.manifest"), default=None)
    wait_for(lambda: max(tmp_path.glob("checkpoints/*.manifest"), default=None) != newest)
    first.cancel()
    second = started(spark_session, build, checkpoints, "--drain")
    assert second.wait_until_finish() == "DRAINED"
    assert noted(ended) == WINDOWS_AND_TIMERS
    assert len(noted(seen)) == 6


def test_a_failed_drain_goes_on_with_the_next_run(spark_session: Any, tmp_path: Path) -> None:
    """That the pipeline is drained is committed with the first epoch that does so."""
    stop, seen = tmp_path / "stop", tmp_path / "seen"
    stop.touch()
    seen.mkdir()

    def build(p: beam.Pipeline) -> None:
        def check(pair: Any) -> int:
            if pair[1] == 7 and stop.exists():
                raise RuntimeError("stopped")
            return int(pair[1])

        numbers = p | beam.Create([("a", FOR_EVER)]) | count(UntilTen())
        _ = numbers | beam.Map(check) | beam.ParDo(Note(seen))

    checkpoints = f"--checkpoint_dir={tmp_path / 'checkpoints'}"
    first = started(spark_session, build, checkpoints)
    wait_for(lambda: len(noted(seen)) == 3)
    first.drain()
    with pytest.raises(RuntimeError, match="stopped"):
        first.wait_until_finish()
    assert first.state == "FAILED"
    stop.unlink()
    assert started(spark_session, build, checkpoints).wait_until_finish() == "DRAINED"
    assert sorted(map(int, noted(seen))) == list(range(10))


def test_a_test_stream_ends_where_it_is(spark_session: Any, tmp_path: Path) -> None:
    """Its first event is in the window; the drain comes while a step of it runs."""
    began, may_end = tmp_path / "began", tmp_path / "may end"
    ended = tmp_path / "ended"
    ended.mkdir()

    def build(p: beam.Pipeline) -> None:
        stream = Stream().with_output_types(tuple[str, int])
        stream.add_elements([TimestampedValue(("a", 1), 1)])
        stream.add_elements([TimestampedValue(("a", 2), 2)]).advance_watermark_to_infinity()

        def wait(pair: tuple[str, int]) -> tuple[str, int]:
            began.touch()
            wait_for(may_end.exists)
            return pair

        waited = p | stream | beam.Map(wait).with_output_types(tuple[str, int])
        groups = waited | beam.WindowInto(FixedWindows(HOUR_S)) | beam.GroupByKey()
        texts = groups | beam.MapTuple(lambda key, values: f"{key} {sorted(values)}")
        _ = texts | beam.ParDo(Note(ended))

    result = started(spark_session, build)
    wait_for(began.exists)
    result.drain()
    may_end.touch()
    assert result.wait_until_finish() == "DRAINED"
    assert noted(ended) == ["a [1]"]


def test_a_batch_pipeline_is_not_drained(spark_session: Any) -> None:
    result = started(spark_session, lambda p: p | beam.Create([1]))
    with pytest.raises(UnsupportedFeatureError, match="draining a pipeline that runs in batch"):
        result.drain()
    assert result.wait_until_finish() == "DONE"
