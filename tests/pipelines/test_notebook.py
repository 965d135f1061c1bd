"""Interactive Beam on top of this runner."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.interactive import interactive_beam as ib
from apache_beam.runners.interactive import interactive_environment as ie
from apache_beam.runners.interactive.interactive_runner import InteractiveRunner
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner import SparkPortableRunner


def rows(frame: Any) -> list[Any]:
    return sorted(map(tuple, frame.to_numpy().tolist()))


@pytest.mark.rare
def test_collect_and_continue(spark_session: Any) -> None:
    seen: list[str] = []

    class Runner(SparkPortableRunner):
        def run_portable_pipeline(self, pipeline: Any, options: Any) -> Any:
            result = super().run_portable_pipeline(pipeline, options)
            seen.append(result.state)
            return result

    p = beam.Pipeline(InteractiveRunner(underlying_runner=Runner(spark_session)))
    words = p | beam.Create(["a", "b", "a"])
    counts = words | beam.combiners.Count.PerElement()
    ib.watch({"p": p, "words": words, "counts": counts})
    assert rows(ib.collect(counts)) == [("a", 2), ("b", 1)]
    more = counts | "more" >> beam.MapTuple(lambda word, count: (word, count * 10))
    ib.watch({"more": more})
    assert rows(ib.collect(more)) == [("a", 20), ("b", 10)]
    assert seen == ["DONE", "DONE"]


class Ticks(beam.PTransform):  # type: ignore[misc]
    """A source that Interactive Beam can record: its class comes back from a proto."""

    def __init__(self, **times: float) -> None:
        super().__init__()
        self._times = times

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        return begin | PeriodicImpulse(**self._times)

    def to_runner_api_parameter(self, context: Any) -> Any:
        return self.to_runner_api_pickled(context)


@pytest.fixture
def recording() -> Iterator[None]:
    """Interactive Beam records ``Ticks``; afterwards it is as it was."""
    ib.options.recordable_sources.add(Ticks)
    duration, size = ib.options.recording_duration, ib.options.recording_size_limit
    ib.options.recording_duration = timedelta(hours=1)
    yield
    ib.options.recording_duration, ib.options.recording_size_limit = duration, size
    ib.options.recordable_sources.remove(Ticks)
    ie.current_env().cleanup()


def counted(ticks: beam.PCollection) -> beam.PCollection:
    windowed = ticks | beam.WindowInto(FixedWindows(5)) | beam.Map(lambda tick: ("tick", 1))
    return windowed | beam.CombinePerKey(sum)


@pytest.mark.usefixtures("recording")
@pytest.mark.rare
def test_an_unbounded_source_is_recorded_once_and_played(spark_session: Any) -> None:
    runner = InteractiveRunner(underlying_runner=SparkPortableRunner(spark_session))
    p = beam.Pipeline(runner)
    ticks = p | Ticks(start_timestamp=0, stop_timestamp=12, fire_interval=1)
    counts = counted(ticks)
    ib.watch({"p": p, "ticks": ticks, "counts": counts})
    assert rows(ib.collect(counts)) == [("tick", 2), ("tick", 5), ("tick", 5)]
    assert ie.current_env().get_background_caching_job(p).state == "DONE"
    late = counts | beam.MapTuple(lambda tick, count: (tick, count * 10))
    ib.watch({"late": late})
    assert rows(ib.collect(late)) == [("tick", 20), ("tick", 50), ("tick", 50)]
    assert rows(ib.collect(ticks)) == [(second,) for second in range(12)]


@pytest.mark.rare
@pytest.mark.usefixtures("recording")
def test_recording_ends_at_its_limit(spark_session: Any) -> None:
    """The source is endless; windows fire by its recorded watermark while it is recorded."""
    ib.options.recording_size_limit = 20_000
    runner = InteractiveRunner(underlying_runner=SparkPortableRunner(spark_session))
    p = beam.Pipeline(runner)
    ticks = p | Ticks(fire_interval=0.1)
    counts = counted(ticks)
    ib.watch({"p": p, "ticks": ticks, "counts": counts})
    found = rows(ib.collect(counts))
    assert ie.current_env().get_background_caching_job(p).state == "CANCELLED"
    recorded = rows(ib.collect(ticks))
    assert sum(count for _, count in found) == len(recorded) > 20


def test_a_result_shows_its_plan(spark_session: Any) -> None:
    pipeline = beam.Pipeline(SparkPortableRunner(spark_session))
    pipeline | beam.Create(["<a>"]) | "<Count>" >> beam.combiners.Count.PerElement()
    result = pipeline.run()
    assert result.wait_until_finish() == "DONE"
    page = result._repr_html_()
    assert page.startswith("<p>DONE</p>")
    assert "one Spark job" in page
    assert "&lt;Count&gt;" in page
    assert "<Count>" not in page
