"""Pipelines with a TestStream whose events a service gives while they run."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import FastPrimitivesCoder
from apache_beam.runners.runner import PipelineState
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.testing.test_stream_service import TestStreamServiceController as Service
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.core.errors import EventServiceError
from tests.harvest import Harvest, harvest, run
from tests.stateful import Number

Reads = Callable[[], Iterator[Any]]


class _Reader:
    def __init__(self, read: Reads) -> None:
        self._read = read

    def read_multiple(self, labels: Sequence[Any]) -> Iterator[Any]:
        yield from self._read()


@contextlib.contextmanager
def service(read: Reads) -> Iterator[str]:
    """Serve what a function gives to each who asks; return the URL."""
    serving = Service(_Reader(read))
    serving.start()
    yield serving.endpoint
    serving.stop()


def protos(stream: Stream) -> list[Any]:
    """Return events as Beam's service gives them: their times are microseconds."""
    found = []
    for event in stream._events:
        proto = event.to_runner_api(FastPrimitivesCoder())
        match proto.WhichOneof("event"):
            case "watermark_event":
                proto.watermark_event.new_watermark *= 1000
            case "processing_time_event":
                proto.processing_time_event.advance_duration *= 1000
            case _:
                for each in proto.element_event.elements:
                    each.timestamp *= 1000
        found.append(proto)
    return found


def pairs(*times: int) -> list[TimestampedValue]:
    return [TimestampedValue(("a", time), time) for time in times]


def stream(url: str) -> Stream:
    return Stream(endpoint=url).with_output_types(tuple[str, int])


def harvest_served(
    spark: Any, read: Reads, steps: Callable[[beam.PCollection], Any], *flags: str
) -> Harvest:
    """Run some steps on the events that a service gives."""
    with service(read) as url:
        return harvest(spark, lambda p: {"found": steps(p | stream(url))}, *flags)


def test_elements_watermarks_and_late_data(spark_session: Any) -> None:
    events = protos(
        Stream()
        .add_elements(pairs(1, 2))
        .advance_watermark_to(10)
        .add_elements(pairs(3, 12))
        .advance_watermark_to_infinity()
    )

    def sums(given: beam.PCollection) -> Any:
        return given | beam.WindowInto(FixedWindows(10)) | beam.CombinePerKey(sum)

    found = harvest_served(spark_session, lambda: iter(events), sums)
    assert found.timed("found") == [(("a", 3), 9.999), (("a", 12), 19.999)]


class Late(beam.DoFn):  # type: ignore[misc]
    """Gives a key's element out ten seconds of processing time later."""

    LATER = TimerSpec("later", TimeDomain.REAL_TIME)

    def process(self, pair: Any, later: Any = beam.DoFn.TimerParam(LATER)) -> None:
        later.set(1_000_010)

    @on_timer(LATER)  # type: ignore[untyped-decorator]
    def give(self, key: Any = beam.DoFn.KeyParam) -> Iterator[str]:
        yield key


def test_processing_time_is_what_the_events_add_up_to(spark_session: Any, tmp_path: Path) -> None:
    """As Interactive Beam gives them: the first advances processing time to when it recorded."""
    seen = tmp_path / "seen"

    def read() -> Iterator[Any]:
        yield from protos(
            Stream()
            .advance_processing_time(1_000_000)
            .add_elements(pairs(1))
            .advance_processing_time(9)
        )
        yield from protos(Stream().advance_processing_time(1))
        wait_for(seen)

    def late(given: beam.PCollection) -> Any:
        return given | beam.ParDo(Late()) | beam.Map(touch, str(seen))

    assert harvest_served(spark_session, read, late)["found"] == ["a"]


def wait_for(file: Path) -> None:
    """Wait until the pipeline has made a file; it fails the service if that takes too long."""
    patience = threading.Event()
    for _ in range(1200):
        if file.exists():
            return
        patience.wait(0.1)
    raise AssertionError(f"{file.name} has not appeared")


def touch(element: Any, path: str) -> Any:
    Path(path).touch()
    return element


def test_what_has_arrived_is_processed_before_the_next_event_comes(
    spark_session: Any, tmp_path: Path
) -> None:
    def read() -> Iterator[Any]:
        wait_for(tmp_path / "created")  # impulses wait for no event
        yield from protos(Stream().add_elements(pairs(1)))
        wait_for(tmp_path / "1")
        yield from protos(Stream().add_elements(pairs(2)))
        wait_for(tmp_path / "2")

    def mark(pair: Any) -> Any:
        return touch(pair, str(tmp_path / str(pair[1])))

    with service(read) as url:

        def build(p: beam.Pipeline) -> Any:
            p | beam.Create(["created"]) | beam.Map(lambda name: touch(name, str(tmp_path / name)))
            return {"found": p | stream(url) | beam.Map(mark)}

        assert harvest(spark_session, build)["found"] == [("a", 1), ("a", 2)]


def test_outputs_have_tags_and_none_need_be_read(spark_session: Any) -> None:
    given = Stream(output_tags=["a", "b"])
    given.add_elements([1], tag="a").add_elements([2], tag="b").advance_watermark_to(5, tag="a")
    given.advance_watermark_to(5, tag="b").add_elements([3], tag="b")
    events = protos(given)
    with service(lambda: iter(events)) as url:

        def build(p: beam.Pipeline) -> Any:
            return {"b": (p | Stream(endpoint=url, output_tags=["a", "b"]))["b"]}

        assert harvest(spark_session, build)["b"] == [2, 3]


def test_known_events_of_an_output_that_nobody_reads(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> Any:
        given = Stream(output_tags=["a", "b"])
        given.advance_watermark_to(5, tag="a").add_elements([2], tag="b")
        return {"b": (p | given)["b"]}

    assert harvest(spark_session, build)["b"] == [2]


def test_a_cancelled_run_waits_for_no_event(spark_session: Any, tmp_path: Path) -> None:
    has_ended = threading.Event()

    def read() -> Iterator[Any]:
        yield from protos(Stream().add_elements(pairs(1)))
        has_ended.wait()

    with service(read) as url:
        pipeline = beam.Pipeline(SparkPortableRunner(spark=spark_session))
        pipeline | stream(url) | beam.Map(lambda pair: touch(pair, str(tmp_path / "seen")))
        result = pipeline.run()
        wait_for(tmp_path / "seen")
        result.cancel()
        assert result.state == PipelineState.CANCELLED
        has_ended.set()


def test_no_service(spark_session: Any) -> None:
    with pytest.raises(EventServiceError, match=r"^Recorded: .* at localhost:1 sends no events"):
        run(spark_session, lambda p: p | "Recorded" >> stream("localhost:1") | beam.Map(str))


def test_a_service_that_dies_and_a_run_that_continues(spark_session: Any, tmp_path: Path) -> None:
    """The service is asked again; what has happened already does not happen again."""
    events = protos(
        Stream()
        .add_elements(pairs(1, 2))
        .advance_watermark_to(10)
        .add_elements(pairs(3, 12))
        .add_elements(pairs(13))
    )

    def dies() -> Iterator[Any]:
        yield from events[:3]
        raise RuntimeError("out of order")

    def steps(given: beam.PCollection) -> Any:
        return given | beam.ParDo(Number())

    flag = f"--checkpoint_dir={tmp_path}"
    with pytest.raises(EventServiceError, match="out of order"):
        harvest_served(spark_session, dies, steps, flag)
    found = harvest_served(spark_session, lambda: iter(events), steps, flag)
    assert found["found"] == [("a", 4)], "the fifth element, and no other"
