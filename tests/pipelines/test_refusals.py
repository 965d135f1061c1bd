"""What is refused before anything runs, with the step that asks for it."""

import re
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_stream
from apache_beam.transforms import trigger, window
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.window import TimestampedValue

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.core.errors import (
    InvalidPipelineError,
    OptionsError,
    PipelineError,
    PipelineRefusedError,
    StagingError,
)
from beam_spark_runner.transforms import ReadFromSpark, WriteToSpark
from tests.harvest import harvest, run
from tests.stateful import Keeps
from tests.user_packages import wheel


def refusal(spark: Any, build: Any, *flags: str) -> str:
    pipeline = beam.Pipeline(
        runner=SparkPortableRunner(spark=spark), options=PipelineOptions(list(flags))
    )
    build(pipeline)
    with pytest.raises(PipelineError) as caught:
        pipeline.run()
    return str(caught.value)


def test_all_at_once(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> None:
        p | test_stream.TestStream().add_elements([("a", 1)])
        for name in ("one", "other"):
            p | f"table {name}" >> ReadFromSpark(table="t", schema="id INT")

    text = refusal(spark_session, build)
    for pattern in ("table one.*: a read of a Spark", "table other.*: a read of a Spark"):
        assert re.search(rf"^  - {pattern}", text, re.MULTILINE), text
    assert text.startswith("the pipeline cannot run (2 problem(s))"), text


def test_what_a_streaming_pipeline_cannot_do_with_tables(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        rows = p | "In" >> ReadFromSpark(query="SELECT 1 AS id", schema="id INT")
        written = rows | "Out" >> WriteToSpark(path="/out", format="delta", mode="append")
        return {"written": written | "Use" >> beam.Map(str)}

    with pytest.raises(PipelineRefusedError) as raised:
        harvest(spark_session, build, "--streaming")
    text = str(raised.value)
    assert "In: a read of a Spark table in a streaming pipeline is not supported" in text
    assert "Use: a step that reads the result of WriteToSpark in a streaming pipeline" in text


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (window.GlobalWindows(), window.FixedWindows(5), "fixed_windows (size 5 s) of other"),
        (window.FixedWindows(5), window.FixedWindows(7), "fixed_windows (size 7 s) of other"),
        (
            window.SlidingWindows(10, 5),
            window.SlidingWindows(10, 2.5, 1),
            "sliding_windows (size 10 s, period 2.5 s, offset 1 s) of other",
        ),
    ],
)
@pytest.mark.parametrize("step", ["Flatten", "CoGroupByKey"])
def test_unlike_windows_in_one_collection(
    spark_session: Any, one: Any, other: Any, message: str, step: str
) -> None:
    def build(p: beam.Pipeline) -> None:
        pairs = p | beam.Create([("a", 1)])
        mixed = (
            pairs | "one" >> beam.WindowInto(one),
            pairs | "other" >> beam.WindowInto(other),
        )
        mixed |= "mix" >> getattr(beam, step)()
        if step == "Flatten":
            mixed | beam.GroupByKey()

    text = refusal(spark_session, build)
    assert re.search("^  - mix.*: Inputs to Flatten had incompatible window windowFns", text, re.M)
    # A CoGroupByKey tags its inputs first.
    assert (message if step == "Flatten" else message.removesuffix(" of other")) in text


def test_sessions_of_any_gap_may_be_mixed(spark_session: Any) -> None:
    """As Beam's Java SDK has it. They merge by the windows that they were given."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = p | beam.Create([("a", 0), ("a", 6)])
        pairs |= beam.Map(lambda pair: TimestampedValue(pair, pair[1]))
        mixed = (
            pairs | "short" >> beam.WindowInto(window.Sessions(2)),
            pairs | "long" >> beam.WindowInto(window.Sessions(7)),
        ) | beam.Flatten()
        return {"sums": mixed | beam.CombinePerKey(beam.combiners.CountCombineFn())}

    assert harvest(spark_session, build)["sums"] == [("a", 4)]


def test_a_transform_that_nobody_knows(spark_session: Any) -> None:
    pipeline = beam.Pipeline(runner=SparkPortableRunner(spark=spark_session))
    pipeline | beam.Create([1], reshuffle=False) | "odd" >> beam.Map(print)
    proto = pipeline.to_runner_api()
    (odd,) = (
        each
        for each in proto.components.transforms.values()
        if each.unique_name == "odd" and each.spec.urn == "beam:transform:pardo:v1"
    )
    odd.spec.urn = "beam:transform:unheard_of:v1"
    with pytest.raises(PipelineRefusedError, match="odd: the transform beam:transform:unheard_of"):
        SparkPortableRunner(spark=spark_session).run_portable_pipeline(proto, PipelineOptions([]))


def test_sorting_what_has_no_keys(spark_session: Any) -> None:
    """The Python SDK has no annotation for it: set in the proto, as Java does."""
    from apache_beam.portability.api import beam_runner_api_pb2

    pipeline = beam.Pipeline(runner=SparkPortableRunner(spark=spark_session))
    pipeline | beam.Create([1], reshuffle=False) | "asks" >> beam.Map(print)
    proto = pipeline.to_runner_api()
    for each in proto.components.transforms.values():
        if each.unique_name == "asks" and each.spec.urn == "beam:transform:pardo:v1":
            par_do = beam_runner_api_pb2.ParDoPayload.FromString(each.spec.payload)
            par_do.requires_time_sorted_input = True
            each.spec.payload = par_do.SerializeToString()
    proto.requirements.append("beam:requirement:pardo:time_sorted_input:v1")
    with pytest.raises(PipelineRefusedError, match="asks: it needs keys") as caught:
        SparkPortableRunner(spark=spark_session).run_portable_pipeline(proto, PipelineOptions([]))
    assert len(caught.value.problems) == 1


class Unordered(beam.coders.Coder):  # type: ignore[misc]
    def encode(self, value: Any) -> bytes:
        return repr(value).encode()

    def decode(self, encoded: bytes) -> Any:
        return eval(encoded)

    def is_deterministic(self) -> bool:
        return False


class Name(str):
    """A type whose coder is not deterministic."""


beam.coders.registry.register_coder(Name, Unordered)


@pytest.mark.parametrize("step", [beam.CombinePerKey(sum), beam.ParDo(Keeps())])
def test_keys_without_deterministic_bytes(spark_session: Any, step: Any) -> None:
    def build(p: beam.Pipeline) -> None:
        (
            p
            | beam.Create(["a"])
            | beam.Map(lambda x: (Name(x), 1)).with_output_types(tuple[Name, int])
            | "sum" >> step
        )

    pipeline = beam.Pipeline(runner=SparkPortableRunner(spark=spark_session))
    build(pipeline)
    with pytest.raises((InvalidPipelineError, ValueError), match=r"determin.*sum|sum.*determin"):
        pipeline.run()


def _seconds(p: beam.Pipeline) -> Any:
    return p | PeriodicImpulse(0, 10, 1, apply_windowing=False) | beam.Map(lambda time: (0, time))


def test_a_group_that_never_ends() -> None:
    """Beam knows it where the pipeline is made; no Spark is started for it."""
    with pytest.raises(ValueError, match="cannot be applied to an unbounded PCollection"):
        _seconds(beam.Pipeline(runner=SparkPortableRunner())) | beam.GroupByKey()


def test_a_trigger_that_may_lose_data() -> None:
    windowed = _seconds(beam.Pipeline(runner=SparkPortableRunner())) | beam.WindowInto(
        window.FixedWindows(5),
        trigger=trigger.AfterCount(1),
        accumulation_mode=trigger.AccumulationMode.DISCARDING,
    )
    with pytest.raises(ValueError, match=r"Gather: Unsafe trigger: `AfterCount\(1\)`"):
        windowed | "Gather" >> beam.GroupByKey()


def numbers(p: beam.Pipeline) -> None:
    p | beam.Create([1])


def test_a_package_that_is_not_there(spark_session: Any) -> None:
    with pytest.raises(StagingError, match=r"none\.whl cannot be found.*--extra_packages"):
        run(spark_session, numbers, "--extra_package=none.whl")


def test_workers_that_all_share_take_no_packages(spark_session: Any, tmp_path: Path) -> None:
    file = wheel(tmp_path, "packed_for_a_test", "1.0", "")
    flags = [f"--extra_package={file}", "--environment_type=EMBEDDED"]
    with pytest.raises(OptionsError, match=r"--extra_packages: .* leave --environment_type out"):
        run(spark_session, numbers, *flags)
