"""Streaming pipelines that are drained: their sources end, and all that waits is processed."""

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_spark_runner.core.errors import UnsupportedFeatureError
from tests.harness.processes import wait_for
from tests.harvest import RARE_HARNESSES
from tests.spark.endless import (
    FOR_EVER,
    HOUR_S,
    WINDOWS_AND_TIMERS,
    Note,
    count,
    noted,
    nothing_goes_on,  # noqa: F401  (a fixture)
    started,
    windows_and_timers,
)
from tests.spark.restrictions import Counting

pytestmark = pytest.mark.usefixtures("nothing_goes_on")


class UntilTen(Counting):
    """When it is drained, it counts to ten; what is at six already counts to eleven."""

    def truncate(self, element: Any, restriction: OffsetRange) -> OffsetRange:
        return OffsetRange(restriction.start, max(10, restriction.start + 5))


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
    assert len(noted(seen)) == 6  # the sources have ended, since they would continue forever


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
    newest = max(tmp_path.rglob("checkpoints/**/*.manifest"), default=None)
    wait_for(lambda: max(tmp_path.rglob("checkpoints/**/*.manifest"), default=None) != newest)
    first.cancel()
    second = started(spark_session, build, checkpoints, "--drain")
    assert second.wait_until_finish() == "DRAINED"
    assert noted(ended) == WINDOWS_AND_TIMERS
    assert len(noted(seen)) == 6


def test_a_failed_drain_continues_with_the_next_run(spark_session: Any, tmp_path: Path) -> None:
    """That the pipeline is drained is committed with the first epoch that does so."""
    stop, wait, seen = tmp_path / "stop", tmp_path / "wait", tmp_path / "seen"
    stop.touch()
    seen.mkdir()

    def build(p: beam.Pipeline) -> None:
        def check(pair: Any) -> int:
            if pair[1] == 7 and stop.exists():
                raise RuntimeError("stopped")
            wait_for(lambda: not wait.exists())
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
    wait.touch()
    second = started(spark_session, build, checkpoints)
    wait_for(lambda: second.state == "DRAINING")
    wait.unlink()
    assert second.wait_until_finish() == "DRAINED"
    assert sorted(map(int, noted(seen))) == list(range(10))


def test_what_comes_after_a_drain(
    spark_session: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same pipeline has nothing to do; a source that is new in a later version begins."""
    seen = tmp_path / "seen"
    seen.mkdir()

    def build(p: beam.Pipeline) -> None:
        _ = p | beam.Create([1]) | beam.Map(str)

    def build_more(p: beam.Pipeline) -> None:
        build(p)
        _ = p | "New" >> beam.Create([2, 3]) | beam.ParDo(Note(seen))

    flags = "--streaming", f"--checkpoint_dir={tmp_path / 'checkpoints'}"
    assert started(spark_session, build, *flags, "--drain").wait_until_finish() == "DRAINED"
    assert "nothing is left to do" not in caplog.text
    assert started(spark_session, build, *flags).wait_until_finish() == "DRAINED"
    assert "nothing is left to do: an earlier run has completed this pipeline" in caplog.text
    assert started(spark_session, build_more, *flags).wait_until_finish() == "DONE"
    assert sorted(noted(seen)) == ["2", "3"]


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
