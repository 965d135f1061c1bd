"""What ``setup`` has begun, ``teardown`` ends, before the program hears of the pipeline's end."""

import logging
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.userstate import BagStateSpec

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import LOOPBACK, PROCESS, run


class Buffered(beam.DoFn):  # type: ignore[misc]
    """Writes what it has seen in ``teardown`` only."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def setup(self) -> None:
        self._name = uuid.uuid4().hex
        self._seen: list[int] = []
        Path(self._folder, f"setup-{self._name}").touch()

    def process(self, element: int) -> Iterator[int]:
        self._seen.append(element)
        yield element

    def teardown(self) -> None:
        text = " ".join(map(str, self._seen))
        Path(self._folder, f"teardown-{self._name}").write_text(text)


class Failing(Buffered):
    def process(self, element: int) -> Iterator[int]:
        yield from super().process(element)
        if element == 77:
            raise ValueError("mine")


class Slow(Buffered):
    """Takes a minute for an element."""

    def process(self, element: int) -> Iterator[int]:
        for _ in range(600):
            yield from super().process(element)
            Path(self._folder, f"began-{self._name}").touch()
            time.sleep(0.1)


class Keyed(Buffered):
    def process(  # type: ignore[override]
        self,
        element: tuple[int, int],
        _: Any = beam.DoFn.StateParam(BagStateSpec("bag", VarIntCoder())),  # noqa: B008
    ) -> Iterator[int]:
        yield from super().process(element[0])


class Summing(beam.CombineFn):  # type: ignore[misc]
    def __init__(self, folder: Path) -> None:
        self._dofn = Buffered(folder)

    def setup(self) -> None:
        self._dofn.setup()

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, element: int) -> int:
        return accumulator + element

    def merge_accumulators(self, accumulators: Any) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator

    def teardown(self) -> None:
        self._dofn.teardown()


def names(folder: Path, what: str) -> set[str]:
    return {path.name.partition("-")[2] for path in folder.glob(f"{what}-*")}


def numbers(p: beam.Pipeline) -> Any:
    return p | beam.Create(range(200), reshuffle=False) | "Spread" >> beam.Reshuffle()


def assert_all_are_torn_down(folder: Path) -> None:
    assert names(folder, "setup")
    assert names(folder, "setup") == names(folder, "teardown")


@pytest.mark.spark
def test_what_workers_write_in_teardown_is_there(on_spark: Any, tmp_path: Path) -> None:
    check_what_is_written(on_spark, tmp_path)


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(("--backchannel=files",), id="files"),
        pytest.param(PROCESS, id="PROCESS", marks=pytest.mark.rare),
        pytest.param(LOOPBACK, id="LOOPBACK"),
    ],
)
def test_what_is_written_in_teardown_is_there(
    spark_session: Any, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    check_what_is_written(spark_session, tmp_path, *flags)


def check_what_is_written(spark: Any, tmp_path: Path, *flags: str) -> None:
    run(spark, lambda p: numbers(p) | beam.ParDo(Buffered(tmp_path)), *flags)
    assert_all_are_torn_down(tmp_path)
    texts = [path.read_text() for path in tmp_path.glob("teardown-*")]
    assert sorted(int(n) for text in texts for n in text.split()) == list(range(200))


def test_one_pipeline_after_another(spark_session: Any, tmp_path: Path) -> None:
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        buffered = beam.ParDo(Buffered(folder))
        run(spark_session, lambda p, step=buffered: numbers(p) | step)  # type: ignore[misc]
        assert_all_are_torn_down(folder)


def test_in_all_kinds_of_steps(spark_session: Any, tmp_path: Path) -> None:
    def build(p: beam.Pipeline) -> None:
        values = numbers(p)
        (
            values
            | beam.Map(lambda n: (n, n))
            | "Keyed" >> beam.ParDo(Keyed(tmp_path))
            | "Grouped" >> beam.GroupBy(lambda n: n % 3)
            | "After" >> beam.Map(lambda group: (group[0], list(group[1])))
            | beam.FlatMapTuple(lambda key, them: [(key, n) for n in them])
            | "Per key" >> beam.CombinePerKey(Summing(tmp_path))
        )
        values | "Globally" >> beam.CombineGlobally(Summing(tmp_path))

    run(spark_session, build)
    assert_all_are_torn_down(tmp_path)


def test_a_pipeline_that_fails(spark_session: Any, tmp_path: Path) -> None:
    with pytest.raises(BundleFailedError, match="mine"):
        run(spark_session, lambda p: numbers(p) | beam.ParDo(Failing(tmp_path)))
    assert_all_are_torn_down(tmp_path)


@pytest.mark.spark
def test_a_pipeline_that_is_cancelled(on_spark: Any, tmp_path: Path) -> None:
    pipeline = beam.Pipeline(
        runner=SparkPortableRunner(spark=on_spark), options=PipelineOptions([])
    )
    idle = numbers(pipeline) | "Done by then" >> beam.ParDo(Buffered(tmp_path))
    idle | "Spread again" >> beam.Reshuffle() | beam.ParDo(Slow(tmp_path))
    result = pipeline.run()
    deadline = time.monotonic() + 120
    while len(names(tmp_path, "began")) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert result.cancel() == "CANCELLED"
    assert_all_are_torn_down(tmp_path)


class Raising(Buffered):
    def teardown(self) -> None:
        super().teardown()
        raise ValueError("too late \udc80")


def test_what_teardown_raises_is_logged_with_its_step(
    spark_session: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def build(p: beam.Pipeline) -> None:
        values = numbers(p) | "First" >> beam.ParDo(Raising(tmp_path))
        values | "Second" >> beam.ParDo(Buffered(tmp_path))

    with caplog.at_level(logging.ERROR):
        run(spark_session, build)
    assert_all_are_torn_down(tmp_path)
    errors = [record.getMessage() for record in caplog.records]
    expected = "teardown of First raised ValueError: too late \\udc80"
    assert [expected in error for error in errors] == [True] * (len(names(tmp_path, "setup")) // 2)


@pytest.mark.spark
def test_without_a_backchannel_another_pipeline_tears_nothing_down(
    on_spark: Any, tmp_path: Path
) -> None:
    """The first one may continue: nobody has said that it has ended."""
    run(on_spark, lambda p: numbers(p) | beam.ParDo(Buffered(tmp_path)), "--backchannel=off")
    run(on_spark, numbers)
    assert names(tmp_path, "setup")
    assert names(tmp_path, "teardown") == set()
