"""Random programs of state accesses: the same results in all harnesses, and on other runners."""

import random
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import TimestampedValue

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.recovery.manifest import IncompatibleCheckpointError
from beam_spark_runner.transforms import DeclarativeKeyedProcess
from tests.declared_programs import Program, Runs, RunsAnonymously, expected, programs
from tests.harvest import LOOPBACK, RARE_HARNESSES, harvest, harvest_on
from tests.spark.restarting import Rescaled, StoppedError, stopping_after

EVERYWHERE = [*RARE_HARNESSES, pytest.param(LOOPBACK, id="loopback", marks=pytest.mark.rare)]
KINDS = {"declared": Runs(), "anonymous": RunsAnonymously()}


def records(seed: int, keys: int = 10) -> list[tuple[str, Program]]:
    draw = random.Random(seed)
    of_keys = [programs(draw, 6) for _ in range(keys)]
    return [(f"key {key}", of_keys[key][place]) for place in range(6) for key in range(keys)]


def outputs_of(pairs: Any) -> dict[str, Any]:
    return {label: pairs | label >> DeclarativeKeyedProcess(kind) for label, kind in KINDS.items()}


def check(found: Any, given: list[tuple[str, Program]]) -> None:
    for label in KINDS:
        assert sorted(found[label], key=repr) == expected(given), label


def in_batch(given: list[tuple[str, Program]]) -> Any:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        each = beam.FlatMap(lambda records: records).with_output_types(tuple[str, Any])
        return outputs_of(p | beam.Create([given], reshuffle=False) | each)

    return build


def in_epochs(given: list[tuple[str, Program]]) -> Any:
    third = len(given) // 3

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream()
        for start in range(0, len(given), third):
            events.advance_watermark_to(start)
            events.add_elements(
                [TimestampedValue(each, start) for each in given[start : start + third]]
            )
        each = beam.Map(lambda record: record).with_output_types(tuple[str, Any])
        return outputs_of(p | events.advance_watermark_to_infinity() | each)

    return build


@pytest.mark.parametrize("flags", EVERYWHERE)
def test_programs_in_batch(spark_session: Any, flags: tuple[str, ...]) -> None:
    given = records(1)
    check(harvest(spark_session, in_batch(given), *flags), given)


@pytest.mark.parametrize("flags", EVERYWHERE)
def test_programs_in_epochs(spark_session: Any, flags: tuple[str, ...]) -> None:
    given = records(2)
    check(harvest(spark_session, in_epochs(given), "--streaming", *flags), given)


def test_programs_on_beams_runner() -> None:
    given = records(3)
    check(harvest_on("FnApiRunner", in_batch(given)), given)


def test_programs_continue_with_other_partitions(spark_session: Any, tmp_path: Path) -> None:
    given = records(4)
    runner = Rescaled(SparkPortableRunner(spark=spark_session), 2, (2, 3, 1))
    flags = ("--streaming", "--max_parallelism=8", f"--checkpoint_dir={tmp_path}")
    check(harvest_on(runner, in_epochs(given), *flags), given)


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        ((), LOOPBACK, "has maps that were written entry by entry"),
        (LOOPBACK, (), "has maps that an SDK harness without this package has written, as bags"),
    ],
)
def test_maps_of_a_checkpoint_stay_in_harnesses_of_one_kind(
    spark_session: Any,
    tmp_path: Path,
    first: tuple[str, ...],
    second: tuple[str, ...],
    problem: str,
) -> None:
    """A run in another kind of harness is refused at its start, and one in the same continues."""
    given = records(5)
    flags = ("--streaming", f"--checkpoint_dir={tmp_path}")
    with stopping_after(2), pytest.raises(StoppedError):
        harvest(spark_session, in_epochs(given), *flags, *first)
    with pytest.raises(IncompatibleCheckpointError, match=f"step declared/Keys {problem}"):
        harvest(spark_session, in_epochs(given), *flags, *second)
    harvest(spark_session, in_epochs(given), *flags, *first)
