"""What ``FullWindowPartition`` refuses when a pipeline is built, and what it infers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsSingleton
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.userstate import BagStateSpec
from apache_beam.transforms.window import FixedWindows
from apache_beam.typehints import typehints

from beam_spark_runner.core.errors import (
    InvalidPipelineError,
    OptionsError,
    UnsupportedFeatureError,
)
from beam_spark_runner.transforms import FullWindowPartition, Order
from beam_spark_runner.transforms.full_window.checks import sort_memory_bytes

WINDOW: Any = FullWindowPartition()


class Place(NamedTuple):
    name: str
    height: float
    tags: dict[str, int]


@dataclass(order=True)
class Score:
    points: int


@dataclass
class Plain:
    points: int


class WithState(beam.DoFn):  # type: ignore[misc]
    BAG = BagStateSpec("bag", beam.coders.VarIntCoder())

    def process(self, records: Any, bag: Any = beam.DoFn.StateParam(BAG)) -> None: ...


class WithTimestamp(beam.DoFn):  # type: ignore[misc]
    def process(self, records: Any, time: Any = beam.DoFn.TimestampParam) -> None: ...


def applied(type_: Any, *steps: beam.PTransform, flags: tuple[str, ...] = ()) -> Any:
    pipeline = beam.Pipeline(options=PipelineOptions([*flags]))
    values = pipeline | beam.Create([]).with_output_types(type_)
    for step in steps:
        values |= step
    return values


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: WINDOW.map_partition(None), "map_partition needs a function, not None"),
        (lambda: WINDOW.map_partition(WithState), r"an instance: WithState\(\), not WithState"),
        (lambda: WINDOW.map_partition(WithState()), "WithState has state or timers"),
        (lambda: WINDOW.map_partition(WithTimestamp()), "WithTimestamp asks for TimestampParam"),
        (lambda: WINDOW.aggregate(None), "aggregate needs an instance of CombineFn, not None"),
        (lambda: WINDOW.aggregate(beam.CombineFn), "needs an instance of CombineFn"),
        (lambda: WINDOW.aggregate(sum), "reduce takes a function"),
        (lambda: WINDOW.reduce(None), "reduce needs a function, not None"),
        (lambda: WINDOW.sort_partition(None), "sort_partition needs the place of a field"),
        (lambda: WINDOW.sort_partition(True), "not True"),
        (lambda: WINDOW.sort_partition(str), "sort_partition needs the place of a field"),
        (lambda: WINDOW.sort_partition(0, None), "Order.ASCENDING or Order.DESCENDING, not None"),
        (lambda: WINDOW.sort_partition(0, "ascending"), "Order.ASCENDING or Order.DESCENDING"),
    ],
)
def test_arguments_of_a_wrong_kind(make: Callable[[], Any], problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        make()


@pytest.mark.parametrize("field", [-1, "", "a b", "a..b"])
def test_fields_that_are_none(field: Any) -> None:
    with pytest.raises(ValueError, match="sort_partition"):
        WINDOW.sort_partition(field)


@pytest.mark.parametrize(
    ("type_", "field", "problem"),
    [
        (tuple[int, dict[str, int]], 1, "such keys have no order"),
        (tuple[int, str], 2, "has no field 2"),
        (int, 0, "int has no fields with places"),
        (complex, lambda value: value, "such keys have no order"),
        (int, lambda value: {value: 1}, "such keys have no order"),
        (int, lambda value: {value}, "such keys have no order"),
        (Plain, lambda value: value, "such keys have no order"),
        (Place, "tags", "such keys have no order"),
        (Place, "depth", "has no attribute 'depth'"),
        (Place, 3, "Place has no field 3"),
        (int, "name", "has no attribute 'name'"),
    ],
)
def test_records_that_cannot_be_sorted(type_: Any, field: Any, problem: str) -> None:
    with pytest.raises(InvalidPipelineError, match=problem) as raised:
        applied(type_, "By field" >> WINDOW.sort_partition(field))
    assert raised.value.where == "By field"


@pytest.mark.parametrize(
    ("type_", "field"),
    [
        (tuple[int, str], 0),
        (tuple[int, ...], 5),
        (Any, 0),
        (Any, "name"),
        (int | None, lambda value: value),
        (Place, "height"),
        (Place, 1),
        (Score, lambda score: score),
        (Score, "points"),
        (str, len),
        (beam.Row, "name"),
        (tuple[int, str], lambda pair: pair),
    ],
)
@pytest.mark.parametrize("order", [*Order])
def test_records_that_can_be_sorted_keep_their_type(type_: Any, field: Any, order: Order) -> None:
    before = applied(type_)
    assert (before | WINDOW.sort_partition(field, order)).element_type == before.element_type


@pytest.mark.parametrize("window", [WINDOW, FullWindowPartition.by_key()])
def test_unbounded_collections_and_streaming_pipelines(window: FullWindowPartition) -> None:
    steps = [
        window.map_partition(iter),
        window.sort_partition(0),
        window.aggregate(beam.combiners.CountCombineFn()),
        window.reduce(max),
    ]
    for step in steps:
        with pytest.raises(UnsupportedFeatureError, match="full-window partition") as raised:
            applied(tuple[int, int], "Whole" >> step, flags=("--streaming",))
        assert raised.value.where == "Whole"
        with pytest.raises(UnsupportedFeatureError, match="unbounded"):
            _ = beam.Pipeline() | PeriodicImpulse() | beam.Map(lambda time: (1, time)) | step


@pytest.mark.parametrize(
    ("flags", "size_bytes"),
    [([], 128 << 20), (["--sort_partition_memory=64k"], 64 << 10)],
)
def test_the_memory_of_a_sort(flags: list[str], size_bytes: int) -> None:
    assert sort_memory_bytes(PipelineOptions(flags)) == size_bytes


def test_a_memory_that_is_no_size() -> None:
    problem = "--sort_partition_memory: must be a size in bytes such as 64m or 1g, not 'much'"
    with pytest.raises(OptionsError, match=problem):
        applied(int, WINDOW.sort_partition(lambda v: v), flags=("--sort_partition_memory=much",))


def test_collections_without_keys() -> None:
    with pytest.raises(InvalidPipelineError, match="needs pairs of key and value, not"):
        applied(int, FullWindowPartition.by_key().reduce(max))


def test_side_inputs_in_other_windows() -> None:
    pipeline = beam.Pipeline()
    side = pipeline | "Sides" >> beam.Create([1]) | beam.WindowInto(FixedWindows(1))
    values = pipeline | beam.Create([1])
    with pytest.raises(InvalidPipelineError, match="FixedWindows, but the partition") as raised:
        _ = values | "Look" >> WINDOW.map_partition(lambda records, _: records, AsSingleton(side))
    assert raised.value.where == "Look"


def doubled(records: Iterator[int]) -> Iterator[float]:
    yield from (record * 2.0 for record in records)


@pytest.mark.parametrize(
    ("step", "type_"),
    [
        (WINDOW.map_partition(doubled), float),
        (WINDOW.map_partition(lambda records: records), Any),
        (WINDOW.aggregate(beam.combiners.CountCombineFn()), int),
        (WINDOW.reduce(lambda a, b: a + b), int),
        (WINDOW.reduce(lambda a, b: str(a)), Any),
    ],
)
def test_types_of_results(step: beam.PTransform, type_: Any) -> None:
    wanted = typehints.Any if type_ is Any else type_
    assert applied(int, step).element_type == wanted


def test_types_of_keyed_results() -> None:
    step = FullWindowPartition.by_key().aggregate(beam.combiners.CountCombineFn())
    assert applied(tuple[str, bytes], step).element_type == typehints.Tuple[str, int]
