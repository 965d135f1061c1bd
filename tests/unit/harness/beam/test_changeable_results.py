"""Results that user code changes after it has given them out."""

from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.internal import pickler
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import (
    GlobalWindow,
    TimestampedValue,
)
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.beam.step_choice import step_for
from beam_spark_runner.harness.beam.step_loops import (
    Combined,
)
from beam_spark_runner.harness.values.constants import Kind
from tests.unit.harness.beam.step_outputs import Announcing, Output, all_of, origin


class Batching(beam.DoFn):  # type: ignore[misc]
    """Manual batching: one list for all batches."""

    def __init__(self, size: int = 3) -> None:
        self._size = size
        self._batch: list[int] = []

    def process(self, number: int) -> Iterator[list[int]]:
        self._batch.append(number)
        if len(self._batch) == self._size:
            yield self._batch
            self._batch.clear()


class Nested(beam.DoFn):  # type: ignore[misc]
    """A list within a dict within a pair."""

    def process(self, number: int) -> Iterator[Any]:
        row: list[int] = []
        for digit in range(3):
            row += [number, digit]
            yield (number, {"row": row})
            row.clear()


class Buffers(beam.DoFn):  # type: ignore[misc]
    """Returns a list with one and the same array."""

    def __init__(self) -> None:
        self._buffer = np.zeros(1, np.int64)

    def process(self, number: int) -> Any:
        self._buffer[0] = number
        return [self._buffer]


def _reused() -> Callable[[int], dict[str, int]]:
    buffer: dict[str, int] = {}

    def put(number: int) -> dict[str, int]:
        buffer["number"] = number
        return buffer

    return put


@pytest.mark.parametrize("limit", [1, 7, 100])
@pytest.mark.parametrize(
    ("fn", "take", "expected"),
    [
        pytest.param(Batching(), list, [[n - 2, n - 1, n] for n in range(2, 300, 3)], id="batches"),
        pytest.param(
            Batching(60), list, [list(range(n, n + 60)) for n in range(0, 300, 60)], id="rarely"
        ),
        pytest.param(
            Nested(),
            lambda pair: (pair[0], list(pair[1]["row"])),
            [(n, [n, digit]) for n in range(300) for digit in range(3)],
            id="nested",
        ),
        pytest.param(Buffers(), lambda buffer: int(buffer[0]), list(range(300)), id="array"),
        pytest.param(
            beam.Map(_reused()).fn, lambda buffer: buffer["number"], list(range(300)), id="map"
        ),
    ],
)
def test_results_that_change_later_do_not_wait(
    fn: beam.DoFn, take: Callable[[Any], Any], expected: list[Any], limit: int
) -> None:
    step = step_for(pickler.loads(pickler.dumps(fn)))
    step.limit = limit
    found = all_of(step, list(range(300)), take)
    assert [result for result, _ in found] == expected


def test_the_change_comes_later_and_later_origins_stay_right() -> None:
    """Constants wait while others are sent; each keeps its own origin."""
    step = step_for(beam.Map(lambda n: [n] if n % 3 else n).fn)
    step.limit = 50
    found = all_of(step, list(range(100)))
    assert sorted(found, key=lambda each: each[1]) == [([n] if n % 3 else n, n) for n in range(100)]
    several = step_for(beam.FlatMap(lambda n: (x for x in (n, [n], -n))).fn)
    several.limit = 50
    wanted = [(result, n) for n in range(100) for result in (n, [n], -n)]
    assert sorted(map(repr, all_of(several, list(range(100))))) == sorted(map(repr, wanted))


STAMPED, TAGGED = TimestampedValue("late", 5), TaggedOutput("tag", "tagged")

CHANGEABLE_TAGGED = TaggedOutput("tag", [1])
CONSTANT_TUPLES = [(1, 2), (1,), ((1, 2), 3), (3, (1, 2)), (1, 2, 3), ((1,),)]
CHANGEABLE_TUPLES = [([], 1), (1, []), (([],), 1), (1, 2, []), ([],)]
WINDOWED = WindowedValue("elsewhere", 5, (GlobalWindow(),))


@pytest.mark.parametrize(
    "transform",
    [
        beam.Map(lambda value: value),
        beam.MapTuple(lambda value: value),
        beam.FlatMap(lambda value: [value]),
        beam.FlatMap(lambda value: (each for each in [value])),
    ],
    ids=["map", "map tuple", "list", "generator"],
)
@pytest.mark.parametrize(
    ("results", "announced"),
    [
        pytest.param(["a", "b"], [(["a", "b"], True)], id="constants"),
        pytest.param(["a", STAMPED], [(["a", STAMPED], False)], id="with a timestamp"),
        pytest.param([TAGGED, "a"], [([TAGGED, "a"], False)], id="with a tag"),
        pytest.param(
            ["a", WINDOWED, "b"], [([WINDOWED], False), (["a", "b"], True)], id="in a window"
        ),
        pytest.param(CONSTANT_TUPLES, [(CONSTANT_TUPLES, True)], id="constant tuples"),
        pytest.param(
            ["a", *CHANGEABLE_TUPLES],
            [*(([each], False) for each in CHANGEABLE_TUPLES), (["a"], True)],
            id="changeable tuples",
        ),
        pytest.param(
            ["a", CHANGEABLE_TAGGED],
            [([CHANGEABLE_TAGGED], False), (["a"], True)],
            id="with a tag, and changeable",
        ),
    ],
)
def test_results_that_are_no_values_are_announced(
    transform: Any, results: list[Any], announced: list[tuple[list[Any], bool]]
) -> None:
    step = step_for(transform.fn)
    step.limit = 10
    values = [(each,) for each in results] if "MapTuple" in transform.label else results
    output = Announcing()
    step.run(values, [origin(place) for place in range(len(values))], Kind.OWN, output)
    assert output.announced == announced
    assert sorted(output.received, key=lambda each: each[1]) == [
        (result, place) for place, result in enumerate(results)
    ]


@pytest.mark.parametrize(
    ("made", "makes_lists", "sizes"),
    [
        pytest.param([1, "a"], False, [2], id="constants"),
        pytest.param([[1], ["a"]], True, [2], id="new lists of constants"),
        pytest.param([[1], [2]], False, [1, 1], id="lists that may be one"),
        pytest.param([[[]], [{}]], True, [1, 1], id="new lists of what changes"),
        pytest.param([[1, 2], []], True, [1, 1], id="lists of some other number"),
    ],
)
def test_what_a_combiner_makes_waits_if_nobody_else_has_it(
    made: list[Any], makes_lists: bool, sizes: list[int]
) -> None:
    step = Combined(lambda number: made[number], makes_lists=makes_lists)
    step.limit = 10
    output = Output()
    step.run([("key", 0), (["key"], 1)], [origin(0), origin(1)], Kind.OWN, output)
    assert output.sizes == sizes
    assert output.received == [(("key", made[0]), 0), ((["key"], made[1]), 1)]
