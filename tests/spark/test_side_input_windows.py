"""Every view of every kind of window, by every way to workers, held against Beam's own runner."""

from collections.abc import Callable, Mapping
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.pvalue import AsDict, AsIter, AsList, AsMultiMap, AsSingleton
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindows,
    Sessions,
    SlidingWindows,
    TimestampedValue,
    WindowFn,
)

from beam_spark_runner import runner
from beam_spark_runner.engine.side_inputs import gathered
from beam_spark_runner.spark.driver import gather
from tests.harvest import Harvest, harvest, harvest_on
from tests.spark.returning import return_no_rows

pytestmark = pytest.mark.spark

MAIN: Mapping[str, WindowFn] = {
    "global": GlobalWindows(),
    "fixed": FixedWindows(7),
    "sliding": SlidingWindows(12, 4),
    "sessions": Sessions(3),
}
SIDE: Mapping[str, WindowFn] = {
    "global": GlobalWindows(),
    "fixed": FixedWindows(10),
    "sliding": SlidingWindows(15, 5),
}
TIMES = [*range(10), 15, 16, 17, 31, 47]


def _seen(
    element: Any,
    one: Any,
    several: Any,
    listed: Any,
    table: Any,
    many: Any,
    window: Any = beam.DoFn.WindowParam,
) -> tuple[Any, ...]:
    keys = "even", "odd", "never"
    return (
        str(element),
        str(window),
        one,
        sorted(several),
        sorted(listed),
        sorted(several),  # once more
        sorted(table.items()),
        [sorted(many[key]) for key in keys],
    )


def build(pipeline: beam.Pipeline) -> dict[str, Any]:
    timed = pipeline | beam.Create(TIMES) | beam.Map(lambda time: TimestampedValue(time, time))
    found: dict[str, Any] = {}
    sides: dict[str, tuple[Any, ...]] = {}
    for name, windows in SIDE.items():
        side = timed | f"side, {name}" >> beam.WindowInto(windows)
        pairs = side | f"pairs, {name}" >> beam.Map(lambda n: ("odd" if n % 2 else "even", n))
        total = side | f"sum, {name}" >> beam.CombineGlobally(sum).without_defaults()
        squares = side | f"squares, {name}" >> beam.Map(lambda n: (n, n * n))
        sides[name] = (
            AsSingleton(total, default_value=-1),
            AsIter(side),
            AsList(side),
            AsDict(squares),
            AsMultiMap(pairs),
        )
    for name, windows in MAIN.items():
        groups = (
            timed
            | f"main, {name}" >> beam.WindowInto(windows)
            | f"key, {name}" >> beam.Map(lambda n: (n % 2, n))
            | f"group, {name}" >> beam.GroupByKey()
            | f"sorted, {name}" >> beam.MapTuple(lambda key, ns: (key, sorted(ns)))
        )
        for other, views in sides.items():
            label = f"{name} reads {other}"
            found[label] = groups | label >> beam.Map(_seen, *views)
    return found


@pytest.fixture(scope="module")
def expected() -> Harvest:
    return harvest_on(FnApiRunner(), build)


def _with_the_reports(patch: pytest.MonkeyPatch) -> None:
    pass


def _in_the_closure(patch: pytest.MonkeyPatch) -> None:
    return_no_rows(patch)


def _one_file(patch: pytest.MonkeyPatch) -> None:
    return_no_rows(patch)
    patch.setattr(gathered, "INLINE_BYTES", 0)


def _files_by_tasks(patch: pytest.MonkeyPatch) -> None:
    return_no_rows(patch)
    patch.setattr(gather, "SMALL_BYTES", 0)
    patch.setattr(gather, "MIN_SMALL_BYTES_OF_TASK", 0)


def _broadcast(patch: pytest.MonkeyPatch) -> None:
    _one_file(patch)
    patch.setattr(runner, "folder_of", lambda *_: None)


def _broadcast_in_parts(patch: pytest.MonkeyPatch) -> None:
    _files_by_tasks(patch)
    _broadcast(patch)
    patch.setattr(gather, "PART_BYTES", 200)


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(_with_the_reports, marks=pytest.mark.rare),
        pytest.param(_in_the_closure, marks=pytest.mark.rare),
        pytest.param(_one_file, marks=pytest.mark.rare),
        _files_by_tasks,
        pytest.param(_broadcast, marks=pytest.mark.rare),
        pytest.param(_broadcast_in_parts, marks=pytest.mark.rare),
    ],
)
def test_views_are_those_of_beams_own_runner(
    spark_session: Any,
    expected: Harvest,
    way: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    way(monkeypatch)
    found = harvest(spark_session, build)
    assert len(found.kept) == len(MAIN) * len(SIDE)
    for label in found.kept:
        assert found[label]
        assert found[label] == expected[label], label
