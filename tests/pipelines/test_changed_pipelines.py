"""Streaming pipelines that have changed since they were stopped."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.metrics import Metrics
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.userstate import BagStateSpec
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_spark_runner.recovery.manifest import IncompatibleCheckpointError
from tests.harvest import RARE_HARNESSES, Harvest, harvest
from tests.spark.restarting import StoppedError, stopping_after
from tests.stateful import Number

KEYS = [f"key {number}" for number in range(6)]
PAIRS = tuple[str, int]
Build = Callable[[beam.Pipeline], dict[str, Any]]


class Counted(beam.DoFn):  # type: ignore[misc]
    """Counts elements, and passes them on."""

    def process(self, element: Any) -> Any:
        Metrics.counter("tests", "counted").inc()
        yield element


def events(p: beam.Pipeline) -> Any:
    """Four elements of each key, one in each epoch, at the seconds 0 to 3."""
    stream = Stream().with_output_types(PAIRS)
    for second in range(4):
        stream.add_elements([TimestampedValue((key, second), second) for key in KEYS])
    return p | stream.advance_watermark_to_infinity()


def passed(name: str) -> beam.PTransform:
    return name >> beam.Map(lambda each: each).with_output_types(PAIRS)


def first_version(p: beam.Pipeline) -> dict[str, Any]:
    pairs = events(p) | passed("Pass")
    _ = pairs | passed("Other")
    counted = pairs | "Count" >> beam.ParDo(Counted()).with_output_types(PAIRS)
    windows = counted | beam.WindowInto(FixedWindows(100))
    sums = windows | "Sums" >> beam.CombinePerKey(sum)
    return {"numbers": counted | "Number" >> beam.ParDo(Number()), "sums": sums}


def changed(
    spark: Any, folder: Path, second_version: Build, *flags: str, first: tuple[str, ...] = ()
) -> Harvest:
    """Run the first version for two epochs, and another version to its end."""
    checkpoints = f"--checkpoint_dir={folder}"
    with stopping_after(2), pytest.raises(StoppedError):
        harvest(spark, first_version, checkpoints, "--parallelism=2", *first)
    return harvest(spark, second_version, checkpoints, "--parallelism=2", *flags)


def in_another_order(p: beam.Pipeline) -> dict[str, Any]:
    """Ids and numbers are others; the names are the same."""
    pairs = events(p) | passed("Pass")
    counted = pairs | "Count" >> beam.ParDo(Counted()).with_output_types(PAIRS)
    numbers = counted | "Number" >> beam.ParDo(Number())
    sums = counted | beam.WindowInto(FixedWindows(100)) | "Sums" >> beam.CombinePerKey(sum)
    _ = pairs | passed("Other")
    return {"sums": sums, "numbers": numbers}


def with_more_steps(p: beam.Pipeline) -> dict[str, Any]:
    """Before and next to those of the first version: with state, a source, an exchange."""
    more = p | "More" >> beam.Create([("more", 7)]) | beam.Reshuffle()
    pairs = events(p)
    new = pairs | "New" >> beam.ParDo(Number())
    spread = pairs | "Spread" >> beam.Reshuffle() | passed("Pass") | passed("Pass too")
    counted = spread | "Count" >> beam.ParDo(Counted()).with_output_types(PAIRS)
    windows = counted | beam.WindowInto(FixedWindows(100))
    sums = windows | "Sums" >> beam.CombinePerKey(sum)
    numbers = counted | "Number" >> beam.ParDo(Number())
    return {"new": new, "more": more, "sums": sums, "numbers": numbers}


def renamed(p: beam.Pipeline) -> dict[str, Any]:
    counted = events(p) | "Tally" >> beam.ParDo(Counted()).with_output_types(PAIRS)
    windows = counted | beam.WindowInto(FixedWindows(100))
    sums = windows | "Totals" >> beam.CombinePerKey(sum)
    return {"numbers": counted | "Index" >> beam.ParDo(Number()), "sums": sums}


def without_numbers(p: beam.Pipeline) -> dict[str, Any]:
    counted = events(p) | "Count" >> beam.ParDo(Counted()).with_output_types(PAIRS)
    windows = counted | beam.WindowInto(FixedWindows(100))
    return {"sums": windows | "Sums" >> beam.CombinePerKey(sum)}


def check_rest(found: Harvest, *, has_numbers: bool = True) -> None:
    """Check what comes of the last two epochs; the state is that of the first two."""
    assert found["sums"] == [(key, 0 + 1 + 2 + 3) for key in KEYS]
    if has_numbers:
        assert found["numbers"] == [(key, number) for key in KEYS for number in (2, 3)]
    assert found.counter("counted") == 4 * len(KEYS)


def test_in_another_order(spark_session: Any, tmp_path: Path) -> None:
    check_rest(changed(spark_session, tmp_path, in_another_order))


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_steps_may_be_added(spark_session: Any, tmp_path: Path, flags: tuple[str, ...]) -> None:
    found = changed(spark_session, tmp_path, with_more_steps, *flags, first=flags)
    check_rest(found)
    assert found["new"] == [(key, number) for key in KEYS for number in (0, 1)]
    assert found["more"] == [("more", 7)]


def test_steps_may_have_other_names(spark_session: Any, tmp_path: Path) -> None:
    with pytest.raises(IncompatibleCheckpointError) as caught:
        changed(spark_session, tmp_path, renamed)
    text = str(caught.value)
    assert "set --transform_name_mapping for steps that were renamed or removed" in text
    assert "step Number was removed, but has stored data (state next, " in text
    assert "step Sums/" in text
    assert "Count" not in text  # it stores nothing
    names = '{"Number": "Index", "Sums": "Totals", "Count": "Tally"}'
    flags = f"--checkpoint_dir={tmp_path}", "--parallelism=2"
    mapped = (*flags, f"--transform_name_mapping={names}")
    found = harvest(spark_session, renamed, *mapped)
    check_rest(found)
    assert harvest(spark_session, renamed, *mapped)["numbers"] == []  # it is done
    (counter,) = found.result.metrics().query()["counters"]
    assert (counter.key.step, counter.committed) == ("Tally", 4 * len(KEYS))


def test_steps_may_be_removed(spark_session: Any, tmp_path: Path) -> None:
    removed = '--transform_name_mapping={"Number": ""}'
    found = changed(spark_session, tmp_path, without_numbers, removed, "--parallelism=3")
    check_rest(found, has_numbers=False)


def looked_up(p: beam.Pipeline, *names: str, is_longer: bool = False) -> dict[str, Any]:
    """Look two side inputs up, which fire in the first epoch, in some order."""
    pairs = events(p)
    if is_longer:
        _ = pairs | "New" >> beam.ParDo(Number())  # another stage in the level of the side inputs
    rates = {
        name: beam.pvalue.AsList(p | name >> beam.Create([f"{name} {n}" for n in range(2)]))
        for name in sorted(names)
    }
    looks = "Look" >> beam.Map(
        lambda pair, *lists: (*pair, *sorted(one for each in lists for one in each)),
        *(rates[name] for name in names),
    )
    return {"found": pairs | looks}


@pytest.mark.parametrize("is_longer", [False, True], ids=["swapped", "with another stage"])
def test_side_inputs_that_have_fired(spark_session: Any, tmp_path: Path, is_longer: bool) -> None:
    flags = f"--checkpoint_dir={tmp_path}", "--parallelism=2"
    with stopping_after(3), pytest.raises(StoppedError):
        harvest(spark_session, lambda p: looked_up(p, "a", "b"), *flags)
    found = harvest(spark_session, lambda p: looked_up(p, "b", "a", is_longer=is_longer), *flags)
    assert {pair[2:] for pair in found["found"]} == {("a 0", "a 1", "b 0", "b 1")}
    seconds = {pair[1] for pair in found["found"]}
    assert 3 in seconds
    assert len(found["found"]) == len(KEYS) * len(seconds)


def test_a_side_input_need_not_be_looked_up_by_the_same_step(
    spark_session: Any, tmp_path: Path
) -> None:
    """It is named after what gives it."""

    def build(*readers: str) -> Build:
        def build_it(p: beam.Pipeline) -> dict[str, Any]:
            pairs = events(p)
            rates = beam.pvalue.AsList(p | "Rates" >> beam.Create(["x"]))
            return {
                name: pairs | name >> beam.Map(lambda pair, some: (*pair, *some), rates)
                for name in readers
            }

        return build_it

    flags = f"--checkpoint_dir={tmp_path}", "--parallelism=2"
    with stopping_after(3), pytest.raises(StoppedError):
        harvest(spark_session, build("Report", "Look"), *flags)
    removed = '--transform_name_mapping={"Report": ""}'
    found = harvest(spark_session, build("Look"), *flags, removed)
    assert {pair[2:] for pair in found["Look"]} == {("x",)}


def test_another_kind_of_state_is_refused(spark_session: Any, tmp_path: Path) -> None:
    class Texts(beam.DoFn):  # type: ignore[misc]
        NEXT = BagStateSpec("next", VarIntCoder())

        def process(
            self, pair: PAIRS, next_state: Any = beam.DoFn.StateParam(NEXT)
        ) -> Iterator[PAIRS]:
            next_state.add(1)
            yield pair

    def with_bag(p: beam.Pipeline) -> dict[str, Any]:
        counted = events(p) | "Count" >> beam.ParDo(Counted()).with_output_types(PAIRS)
        windows = counted | beam.WindowInto(FixedWindows(100))
        sums = windows | "Sums" >> beam.CombinePerKey(sum)
        return {"numbers": counted | "Number" >> beam.ParDo(Texts()), "sums": sums}

    with pytest.raises(
        IncompatibleCheckpointError, match="step Number stores other data than before"
    ):
        changed(spark_session, tmp_path, with_bag)


def test_bad_mappings_are_named(spark_session: Any) -> None:
    with pytest.raises(RuntimeError, match="--transform_name_mapping: must be a JSON object"):
        harvest(spark_session, first_version, "--transform_name_mapping=[1]")
