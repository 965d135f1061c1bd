"""What a user reads when a pipeline fails, and what does not run any more."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import Coder
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import BeamAssertException, assert_that, equal_to
from apache_beam.transforms.userstate import CombiningValueStateSpec

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.job.run import run_settings
from tests.harvest import SPREAD, counter_of, run
from tests.spark.restrictions import RESTRICTION

IN_TASKS = "ExecutionTreeCreator"
"""The threads in which Beam makes the steps of a stage; pipelines are unpickled before, too."""


def raise_for_the_user() -> None:
    raise LookupError("the user's own words")


class Fails(beam.DoFn):  # type: ignore[misc]
    def __init__(self, method: str) -> None:
        self._method = method

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._method == "unpickle" and threading.current_thread().name.startswith(IN_TASKS):
            raise_for_the_user()

    def _fail_in(self, method: str) -> None:
        if self._method == method:
            raise_for_the_user()

    def setup(self) -> None:
        self._fail_in("setup")

    def start_bundle(self) -> None:
        self._fail_in("start_bundle")

    def process(self, element: Any, side: Any = ()) -> Iterator[Any]:
        Metrics.counter("tests", "processed").inc()
        self._fail_in("process")
        yield element
        self._fail_in("process, after a yield")

    def finish_bundle(self) -> None:
        self._fail_in("finish_bundle")


METHODS = ["unpickle", "setup", "start_bundle", "process", "process, after a yield"]


@pytest.mark.parametrize("method", [*METHODS, "finish_bundle"])
def test_the_step_and_the_users_traceback(spark_session: Any, method: str) -> None:
    def build(p: beam.Pipeline) -> None:
        p | beam.Create([1]) | "before" >> beam.Map(str) | "Outer's" >> Inner(method)

    with pytest.raises(BundleFailedError) as caught:
        run(spark_session, build)
    check_that_it_helps(caught.value, "Outer's/inner", "'1'" if "process" in method else "")


class Inner(beam.PTransform):  # type: ignore[misc]
    def __init__(self, method: str) -> None:
        super().__init__()
        self._method = method

    def expand(self, values: Any) -> Any:
        return values | "inner" >> beam.ParDo(Fails(self._method)) | "after" >> beam.Map(str)


@pytest.mark.parametrize("method", [*METHODS, "finish_bundle"])
def test_a_step_in_a_stage_that_another_one_feeds(spark_session: Any, method: str) -> None:
    """The reader of a side input is a separate stage in the same task."""

    def build(p: beam.Pipeline) -> None:
        side = p | "side" >> beam.Create([1])
        main = p | beam.Create([1]) | "feeding" >> beam.Map(str)
        main | "inner" >> beam.ParDo(Fails(method), beam.pvalue.AsList(side))

    with pytest.raises(BundleFailedError) as caught:
        run(spark_session, build)
    check_that_it_helps(caught.value, "inner", "'1'" if "process" in method else "")


class FailsInAWindow(beam.DoFn):  # type: ignore[misc]
    """Beam itself runs it, since it asks for more than the element."""

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> None:
        raise_for_the_user()


class FailsWithState(beam.DoFn):  # type: ignore[misc]
    SEEN = CombiningValueStateSpec("seen", sum)

    def process(self, pair: tuple[str, int], seen: Any = beam.DoFn.StateParam(SEEN)) -> None:
        seen.add(1)
        if seen.read() == 3:
            raise_for_the_user()


class FailsInARestriction(beam.DoFn):  # type: ignore[misc]
    def process(self, element: tuple[str, int], tracker: Any = RESTRICTION) -> None:
        if tracker.try_claim(element[1] - 1) and element[0] == "b":
            raise_for_the_user()


class FailsToAdd(beam.CombineFn):  # type: ignore[misc]
    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, value: int) -> int:
        if value == 5:
            raise_for_the_user()
        return value


PAIRS = [("a", 1), ("b", 5), ("c", 7)]
ELEMENTS = {
    "Beam's invoker": (beam.ParDo(FailsInAWindow()), PAIRS[1:2], "('b', 5)"),
    "state": (beam.ParDo(FailsWithState()), [("a", 1), ("a", 2), ("a", 2)], "('a', 2)"),
    "restriction": (beam.ParDo(FailsInARestriction()), PAIRS, "('b', 5)"),
    "combiner": (beam.CombinePerKey(FailsToAdd()), PAIRS, "('b', 5)"),
    "one of many": (beam.Map(lambda pair: {1: 1, 7: 1}[pair[1]]), PAIRS, "('b', 5)"),
}


@pytest.mark.parametrize("kind", ELEMENTS)
def test_the_element_that_is_processed(spark_session: Any, kind: str) -> None:
    step, elements, shown = ELEMENTS[kind]

    def build(p: beam.Pipeline) -> None:
        p | beam.Create(elements) | "inner" >> step | "after" >> beam.Map(str)

    with pytest.raises(BundleFailedError) as caught:
        run(spark_session, build)
    assert caught.value.step == "inner"
    part, _, element = str(caught.value).rpartition(" [while running 'inner")[2].partition("']")
    assert " + " not in part  # the names of all steps of a stage
    assert element == f"\nElement: {shown}\n"


def test_a_step_that_reads_groups_and_that_beam_runs(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> None:
        p | beam.Create([("a", 1)]) | beam.GroupByKey() | "inner" >> beam.ParDo(FailsInAWindow())

    with pytest.raises(BundleFailedError) as caught:
        run(spark_session, build)
    check_that_it_helps(caught.value, "inner", "('a', [1])")


def check_that_it_helps(error: BundleFailedError, step: str, element: str) -> None:
    assert error.step == step
    assert error.cause.startswith("LookupError: the user's own words")
    assert "in raise_for_the_user" in error.traceback_text
    assert str(error).startswith(f"{step}: LookupError: the user's own words")
    ending = f"LookupError: the user's own words [while running '{step}']\n"
    assert str(error).endswith(f"{ending}Element: {element}\n" if element else ending)


def test_assert_that_can_fail(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> None:
        assert_that(p | beam.Create([1, 2]), equal_to([1, 3]), label="wrong")

    with pytest.raises(BeamAssertException) as caught:
        run(spark_session, build)
    assert caught.value.step == "wrong"
    run(spark_session, lambda p: assert_that(p | beam.Create([1, 2]), equal_to([2, 1])))


class Fragile(Coder):  # type: ignore[misc]
    def encode(self, value: Any) -> bytes:
        if value == 13:
            raise_for_the_user()
        return bytes([value])

    def decode(self, encoded: bytes) -> int:
        if encoded[0] == 14:
            raise_for_the_user()
        return encoded[0]

    def is_deterministic(self) -> bool:
        return True


class Number(int):
    """A type with a separate coder."""


beam.coders.registry.register_coder(Number, Fragile)


@pytest.mark.parametrize(
    ("number", "after", "step"),
    [
        (13, beam.Reshuffle(), "make"),
        (13, beam.GroupByKey(), "make"),
        (14, beam.Reshuffle(), "after"),
        (14, beam.GroupByKey(), "after"),
    ],
    ids=["encode", "encode key", "decode", "decode key"],
)
def test_an_element_that_its_coder_refuses(
    spark_session: Any, number: int, after: Any, step: str
) -> None:
    kind: Any = Number if isinstance(after, beam.Reshuffle) else tuple[Number, Number]

    def build(p: beam.Pipeline) -> None:
        numbers = p | beam.Create([1, number]) | "spread" >> beam.Reshuffle()
        (
            numbers
            | "make" >> beam.Map(lambda n: n if kind is Number else (n, n)).with_output_types(kind)
            | "after" >> after
            | "use" >> beam.Map(str)
        )

    with pytest.raises(BundleFailedError, match="the user's own words") as caught:
        run(spark_session, build)
    assert caught.value.step == step
    assert "in raise_for_the_user" in caught.value.traceback_text
    is_decoded = "Error decoding input stream with coder WindowedValueCoder" in str(caught.value)
    assert is_decoded == (step == "after")


class Opaque:
    def __reduce__(self) -> Any:
        raise TypeError("this has no bytes")


def test_an_element_that_does_not_pickle(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> None:
        made = p | beam.Create([1]) | "make" >> beam.Map(lambda _: Opaque())
        made | beam.Reshuffle() | "use" >> beam.Map(id)

    with pytest.raises(BundleFailedError, match="this has no bytes") as caught:
        run(spark_session, build)
    assert caught.value.step == "make"


@pytest.mark.parametrize("after", ["Reshuffle", "GroupByKey", "side input"])
def test_an_element_over_the_limit(
    spark_session: Any, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    monkeypatch.setattr(run_settings, "MAX_VALUE_BYTES", 5_000_000)

    def build(size: int, p: beam.Pipeline) -> None:
        made = p | beam.Create([1, 2]) | "make" >> beam.Map(lambda n: (n, bytes(size)))
        match after:
            case "Reshuffle":
                made | beam.Reshuffle() | beam.Map(check)
            case "GroupByKey":
                made | beam.GroupByKey() | beam.MapTuple(lambda k, vs: [check((k, v)) for v in vs])
            case _:
                (
                    p
                    | beam.Impulse()
                    | beam.Map(
                        lambda _, side: [check(each) for each in side], beam.pvalue.AsList(made)
                    )
                )

    def check(pair: tuple[int, bytes]) -> bool:
        Metrics.counter("tests", "checked").inc()
        assert len(pair[1]) == 4_900_000
        return True

    assert counter_of(run(spark_session, lambda p: build(4_900_000, p)), "checked") == 2
    with pytest.raises(BundleFailedError, match=r"60000\d\d bytes exceeds the limit") as caught:
        run(spark_session, lambda p: build(6_000_000, p))
    assert caught.value.step == "make"


@pytest.mark.spark
def test_an_exit_of_the_worker(on_spark: Any) -> None:
    import os

    def build(p: beam.Pipeline) -> None:
        p | beam.Create([1]) | "leave" >> beam.Map(lambda _: os._exit(3))

    with pytest.raises(RuntimeError, match=r"leave.*ended the Python worker"):
        run(on_spark, build)


class Leaves(beam.DoFn):  # type: ignore[misc]
    def __init__(self, folder: str, name: str) -> None:
        self._file = Path(folder, name)

    def process(self, element: Any) -> Iterator[Any]:
        self._file.touch()
        yield element


@pytest.mark.parametrize("how", ["group", "side input"])
def test_nothing_runs_on_what_a_failed_task_left(
    spark_session: Any, tmp_path: Path, how: str
) -> None:
    check_what_a_failed_task_leaves(spark_session, tmp_path, how)


@pytest.mark.spark
def test_no_spark_task_runs_on_what_a_failed_one_left(on_spark: Any, tmp_path: Path) -> None:
    check_what_a_failed_task_leaves(on_spark, tmp_path, "group")


def check_what_a_failed_task_leaves(spark: Any, tmp_path: Path, how: str) -> None:
    """One of two tasks fails; the other's metrics count, and groups are not run in part."""

    def fail_for_one(n: int) -> tuple[int, int]:
        Metrics.counter("tests", "tried").inc()
        if n == 500:
            raise_for_the_user()
        Metrics.counter("tests", "passed").inc()
        return n % 10, n

    def build(p: beam.Pipeline) -> Any:
        pairs = (
            p
            | beam.Create(range(1000))
            | beam.ParDo(Leaves(str(tmp_path), "ran"))
            | "fail" >> beam.Map(fail_for_one)
        )
        if how == "group":
            groups = (
                pairs
                | beam.GroupByKey()
                | "one" >> beam.ParDo(Leaves(str(tmp_path), "one further"))
            )
            return (
                groups
                | beam.Map(len)
                | beam.Distinct()
                | "2" >> beam.ParDo(Leaves(str(tmp_path), "two further"))
            )
        leaves = beam.ParDo(Leaves(str(tmp_path), "one further"))
        return (
            p
            | beam.Impulse()
            | beam.FlatMap(lambda _, x: x, beam.pvalue.AsIter(pairs))
            | "leave" >> leaves
        )

    pipeline = beam.Pipeline(
        runner=SparkPortableRunner(spark=spark), options=PipelineOptions([SPREAD])
    )
    build(pipeline)
    result = pipeline.run()
    with pytest.raises(BundleFailedError) as caught:
        result.wait_until_finish()
    assert caught.value.step == "fail"
    assert result.state == "FAILED"
    assert [file.name for file in tmp_path.iterdir()] == ["ran"]
    counters = result.metrics().query()["counters"]
    (tried,) = (each for each in counters if each.key.metric.name == "tried")
    assert tried.key.step == "fail"
    assert tried.attempted >= 500
    assert tried.committed is None or tried.committed == 0


def test_an_error_names_the_step_that_the_user_has_applied(
    spark_session: Any, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    write = beam.io.WriteToText(str(tmp_path / "file" / "in no folder"))
    with pytest.raises(BundleFailedError) as raised:
        run(spark_session, lambda pipeline: pipeline | beam.Create([1]) | "Save" >> write)
    assert raised.value.step == "Save"
    assert "[while running 'Save/Write/WriteImpl/" in str(raised.value)


def test_an_output_that_cannot_be_encoded(spark_session: Any) -> None:
    def lock(_: Any) -> Any:
        return threading.Lock()

    def build(pipeline: beam.Pipeline) -> Any:
        numbers = pipeline | beam.Create([1]) | "Before" >> beam.Map(str)
        return numbers | "Lock" >> beam.Map(lock) | beam.Reshuffle() | "After" >> beam.Map(str)

    with pytest.raises(BundleFailedError) as raised:
        run(spark_session, build)
    assert str(raised.value).startswith("Lock: ")
    assert "the output of this step cannot be encoded: the value of an element for Reshuffle" in (
        raised.value.cause
    )
    assert "cannot pickle '_thread.lock' object" in raised.value.cause
