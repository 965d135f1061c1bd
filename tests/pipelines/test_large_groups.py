"""Groups of more than 16 MB, whose values are read from disk: none is ever missing."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.pvalue import AsSingleton
from apache_beam.transforms.combiners import ToListCombineFn
from apache_beam.transforms.window import Sessions, TimestampedValue
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import REUSED_PROCESS, harvest, run

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(300)]

KEYS = range(4)
COUNT = 170
VALUE_BYTES = 100_000
HARNESSES = pytest.mark.parametrize(
    "flags", [(), pytest.param(REUSED_PROCESS, marks=pytest.mark.rare)], ids=["embedded", "process"]
)

Group = tuple[int, Iterable[bytes]]


def values_of(key: int) -> Iterator[tuple[int, bytes]]:
    return ((key, number.to_bytes(8, "big") * (VALUE_BYTES // 8)) for number in range(COUNT))


def large_groups(p: beam.Pipeline) -> Any:
    return p | "keys" >> beam.Create(KEYS) | beam.FlatMap(values_of) | beam.GroupByKey()


class WithSideInput(beam.DoFn):  # type: ignore[misc]
    """Reads a side input, so that it begins a stage: one that runs in the task of the groups."""

    def process(self, element: Any, _: Any) -> Any:
        yield element


class AtTheEnd(WithSideInput):
    """Keeps its elements until the bundle ends, as Beam allows."""

    def start_bundle(self) -> None:
        self._kept: list[WindowedValue] = []

    def process(
        self,
        element: Any,
        _: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
    ) -> Any:
        self._kept.append(WindowedValue(element, timestamp, (window,)))

    def finish_bundle(self) -> Any:
        yield from self._kept


def counted(group: Group) -> tuple[int, int, int]:
    """Key, number of values, number of different values; the values are read twice."""
    key, values = group
    return key, sum(1 for _ in values), len({value[:8] for value in values})


@HARNESSES
def test_every_value_arrives_in_every_stage(spark_session: Any, flags: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        side = AsSingleton(p | "side" >> beam.Create([1]))
        groups = large_groups(p) | "as they are" >> beam.Map(lambda group: group)
        passed = groups | "pass" >> beam.ParDo(WithSideInput(), side)
        return {
            "passed on": passed | "count passed" >> beam.Map(counted),
            "kept": groups
            | "keep" >> beam.ParDo(AtTheEnd(), side)
            | "count kept" >> beam.Map(counted),
            "combined": passed
            | beam.Filter(lambda group: group[0] < 2)  # all of them become one element
            | "values" >> beam.Values()
            | beam.CombineGlobally(ToListCombineFn())
            | "lengths" >> beam.FlatMap(lambda groups: (sum(1 for _ in group) for group in groups)),
        }

    found = harvest(spark_session, build, *flags)
    assert found["passed on"] == [(key, COUNT, COUNT) for key in KEYS]
    assert found["kept"] == [(key, COUNT, COUNT) for key in KEYS]
    assert found["combined"] == [COUNT, COUNT]


@HARNESSES
def test_every_value_of_large_sessions_arrives(spark_session: Any, flags: tuple[str, ...]) -> None:
    def timed(pair: tuple[int, bytes]) -> TimestampedValue:
        """Two sessions for each key."""
        return TimestampedValue((pair[0] % 2, pair[1]), 1000 * (pair[0] // 2))

    def build(p: beam.Pipeline) -> dict[str, Any]:
        side = AsSingleton(p | "side" >> beam.Create([1]))
        pairs = p | "keys" >> beam.Create(KEYS) | beam.FlatMap(values_of) | beam.Map(timed)
        groups = (
            pairs
            | beam.WindowInto(Sessions(10))
            | beam.GroupByKey()
            | "as they are" >> beam.Map(lambda group: group)
        )
        return {
            "passed on": groups
            | "pass" >> beam.ParDo(WithSideInput(), side)
            | "count passed" >> beam.Map(counted),
            "kept": groups
            | "keep" >> beam.ParDo(AtTheEnd(), side)
            | "count kept" >> beam.Map(counted),
        }

    found = harvest(spark_session, build, *flags)
    expected = sorted((key % 2, COUNT, COUNT) for key in KEYS)
    assert found["passed on"] == expected
    assert found["kept"] == expected


KEPT: list[Iterable[bytes]] = []  # in this process


class Keeping(beam.DoFn):  # type: ignore[misc]
    """Keeps the values for later bundles, which Beam does not allow."""

    def process(self, group: Group) -> Any:
        KEPT.append(group[1])
        yield from range(20)


class TooLate(beam.DoFn):  # type: ignore[misc]
    """Reads what earlier bundles in its process have kept."""

    def process(self, _: int) -> Any:
        for values in KEPT:
            yield sum(1 for _ in values)


@HARNESSES
def test_values_that_are_kept_too_long_are_said_to_be_gone(
    spark_session: Any, flags: tuple[str, ...]
) -> None:
    def build(p: beam.Pipeline) -> None:
        large_groups(p) | beam.ParDo(Keeping()) | beam.Reshuffle() | "Late" >> beam.ParDo(TooLate())

    with pytest.raises(BundleFailedError) as raised:
        run(spark_session, build, *flags)
    assert raised.value.step == "Late"
    assert re.search(
        r"GroupClosedError: the values of a group can be read only until .* copy those",
        raised.value.cause,
    )
