"""Loops over lists of values: the same results as one by one, in pieces of their origins."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.internal import pickler
from apache_beam.transforms import core
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.harness.beam.process_loop import ProcessLoop
from beam_spark_runner.harness.beam.step_choice import Arguments, step_for
from beam_spark_runner.harness.beam.step_loops import (
    Filtering,
    Mapped,
    MappedTuples,
    NewResultsLoop,
)
from beam_spark_runner.harness.values.constants import Kind
from tests.unit.harness.beam.step_outputs import Announcing, Output, Received, all_of, origin


def one_by_one(step: Any, values: list[Any]) -> list[Received]:
    """The same, where no value waits for others."""
    output = Output()
    run_one = step.one_by_one(output.send_one)
    for place, value in enumerate(values):
        run_one(value, origin(place))
    return output.received


class Repeat(beam.DoFn):  # type: ignore[misc]
    """Says a number as often as it is large, in one of three ways."""

    def process(self, number: int) -> Any:
        if number % 3 == 0:
            return [number] * number
        return (each for each in [number] * number) if number % 3 == 1 else (number,) * number


class New(beam.DoFn):  # type: ignore[misc]
    """Makes lists, to which nobody else refers."""

    makes_new_results = True

    def process(self, number: int) -> Any:
        return ([number] for _ in range(number))


class Never(beam.DoFn):  # type: ignore[misc]
    def process(self, number: int) -> None:
        return None


SHAPES: list[tuple[Any, type, Callable[[int], list[Any]]]] = [
    (beam.Map(lambda n: n + 1), Mapped, lambda n: [n + 1]),
    (beam.Map(lambda n: None), Mapped, lambda n: [None]),
    (beam.Map(str), Mapped, lambda n: [str(n)]),
    (beam.Map(lambda n: n).with_output_types(int), Mapped, lambda n: [n]),
    (beam.Filter(lambda n: n % 2), Filtering, lambda n: [n] if n % 2 else []),
    (beam.Filter(bool), Filtering, lambda n: [n] if n else []),
    (beam.ParDo(core._KeyWithNone()), Mapped, lambda n: [(None, n)]),
    (beam.FlatMap(range), ProcessLoop, lambda n: list(range(n))),
    (beam.FlatMap(lambda n: str(n)), ProcessLoop, lambda n: list(str(n))),
    (beam.ParDo(Repeat()), ProcessLoop, lambda n: [n] * n),
    (beam.ParDo(Never()), ProcessLoop, lambda n: []),
    (beam.ParDo(New()), NewResultsLoop, lambda n: [[n]] * n),
]


@pytest.mark.parametrize(("transform", "kind", "expected"), SHAPES)
@given(values=st.lists(st.integers(0, 50), min_size=1, max_size=40), limit=st.integers(1, 20))
def test_results_and_their_origins(
    transform: Any, kind: type, expected: Callable[[int], list[Any]], values: list[int], limit: int
) -> None:
    fn = pickler.loads(pickler.dumps(transform.fn))  # as a worker gets it
    step = step_for(fn)
    assert type(step) is kind
    step.limit = limit
    wanted = [(result, place) for place, n in enumerate(values) for result in expected(n)]
    assert all_of(step, values) == wanted
    assert one_by_one(step, values) == wanted


def test_tuples_are_spread_over_the_arguments() -> None:
    for transform in (beam.MapTuple(lambda a, b: a + b), beam.MapTuple(max)):
        fn = pickler.loads(pickler.dumps(transform.fn))
        step = step_for(fn)
        assert type(step) is MappedTuples
        for run in (all_of, one_by_one):
            assert [result for result, _ in run(step, [(2, 1), (3, 3)])] in ([3, 6], [2, 3])


def _add(n: int, *more: int, times: int = 1) -> int:
    return (n + sum(more)) * times


@pytest.mark.parametrize(
    ("args", "kwargs"), [((5,), {}), ((5, 6), {}), ((), {"times": 3}), ((5,), {"times": 3})]
)
def test_arguments_that_are_the_same_for_all_elements(
    args: tuple[int, ...], kwargs: dict[str, int]
) -> None:
    sums = [_add(n, *args, **kwargs) for n in range(5)]
    numbers = list(range(5))
    shapes: list[tuple[Any, type, list[Any], list[int]]] = [
        (beam.Map(_add), Mapped, numbers, sums),
        (beam.FlatMap(lambda *n, **by: [_add(*n, **by)]), ProcessLoop, numbers, sums),
        (beam.Filter(lambda *n, **by: _add(*n, **by) > sums[2]), Filtering, numbers, [3, 4]),
    ]
    for transform, kind, values, expected in shapes:
        fn = pickler.loads(pickler.dumps(transform.fn))
        step = step_for(fn, Arguments(args, kwargs))
        assert type(step) is kind
        assert [result for result, _ in all_of(step, values)] == expected


@pytest.mark.parametrize("limit", [1, 3, 10])
def test_no_more_is_read_ahead_than_the_limit(limit: int) -> None:
    read = 0

    def endless(_: int) -> Iterator[int]:
        nonlocal read
        while True:
            read += 1
            yield read

    class Stop(Exception):
        pass

    class Bounded(Output):
        def send(self, results: Any, origins: Any, kind: Kind, *, are_values: bool) -> None:
            super().send(results, origins, kind, are_values=are_values)
            assert read == len(self.received)
            if read > 1000:
                raise Stop

    step = step_for(beam.FlatMap(endless).fn)
    step.limit = limit
    output = Bounded()
    with pytest.raises(Stop):
        step.run([0], [origin(0)], Kind.OWN, output)
    assert set(output.sizes) == {limit}


@pytest.mark.parametrize("count", range(18, 36))
@pytest.mark.parametrize("kind", [list, iter], ids=["list", "iterator"])
@pytest.mark.parametrize("limit", [1, 7, 8, 9, 20])
def test_results_of_a_call_are_all_there_in_order(count: int, kind: Any, limit: int) -> None:
    def process(number: int) -> Any:
        return kind([(number, place) if place % 5 else [place] for place in range(number)])

    step = ProcessLoop(process)
    step.limit = limit
    output = Output()
    numbers = [*range(18), count]
    step.run(numbers, [origin(number) for number in numbers], Kind.OWN, output)
    expected = [(place, number) for number in numbers for place in range(number)]
    found = [(each[0] if isinstance(each, list) else each[1], at) for each, at in output.received]
    assert sorted(found) == sorted(expected)
    constants = [each for each, _ in output.received if isinstance(each, tuple)]
    assert constants == [(number, place) for place, number in expected if place % 5]


def test_values_that_a_filter_lets_through_stay_values() -> None:
    output = Announcing()
    step = step_for(beam.Filter(lambda n: n != 2).fn)
    for values in ([1, 3], [1, 2, 3], [2]):
        step.run(values, [origin(n) for n in values], Kind.OWN, output)
    assert output.announced == [([1, 3], True), ([1, 3], True)]
    assert output.received == [(1, 1), (3, 3)] * 2


class Saying(beam.DoFn):  # type: ignore[misc]
    """Returns what it is given."""

    def process(self, value: Any) -> Any:
        return value


@pytest.mark.parametrize("value", ["text", b"bytes", {"a": 1}])
def test_text_in_place_of_results_is_refused_where_beam_refuses_it(value: Any) -> None:
    name = type(value).__name__
    for run in (all_of, one_by_one):
        with pytest.raises(TypeError, match=f"Returning a {name} from a ParDo or FlatMap"):
            run(step_for(Saying()), [value])
        # Beam looks at the first call only.
        found = run(step_for(Saying()), [["first"], value])
        assert [result for result, _ in found] == ["first", *value]


@pytest.mark.parametrize(
    ("count", "sizes"), [(8, [8]), (9, [4, 4, 1]), (12, [4, 4, 4])], ids=["few", "more", "even"]
)
def test_results_of_a_map_come_in_pieces(count: int, sizes: list[int]) -> None:
    step = step_for(beam.Map(lambda n: n).fn)
    step.limit = 4
    output = Output()
    step.run(list(range(count)), [origin(n) for n in range(count)], Kind.OWN, output)
    assert output.sizes == sizes


@pytest.mark.parametrize("kind", [list, tuple])
def test_results_of_several_calls_come_in_pieces(kind: Any) -> None:
    step = ProcessLoop(lambda n: kind([n] * 2))
    step.limit = 4
    output = Output()
    step.run(list(range(9)), [origin(n) for n in range(9)], Kind.OWN, output)
    assert output.sizes == [4, 4, 4, 4, 2]
    assert output.received == [(n, n) for n in range(9) for _ in range(2)]


@pytest.mark.parametrize("limit", [1, 3, 20])
def test_an_iterator_that_begins_again_after_its_end_is_read_once(limit: int) -> None:
    class Anew:
        left = 2

        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            if not self.left:
                self.left = 2
                raise StopIteration
            self.left -= 1
            return self.left

    for run in (all_of, one_by_one):
        step = ProcessLoop(lambda _: Anew())
        step.limit = limit
        assert run(step, ["a", "b"]) == [(1, 0), (0, 0), (1, 1), (0, 1)]


def test_sending_may_lower_the_limit() -> None:
    class Lowering(Output):
        def send(self, results: Any, origins: Any, kind: Kind, *, are_values: bool) -> None:
            super().send(results, origins, kind, are_values=are_values)
            step.limit = 2

    step = step_for(beam.FlatMap(lambda _: (n if n != 30 else [n] for n in range(60))).fn)
    step.limit = 50
    output = Lowering()
    step.run([0], [origin(0)], Kind.OWN, output)
    assert sorted(map(repr, output.received)) == sorted(
        repr((n if n != 30 else [n], 0)) for n in range(60)
    )


def test_what_a_generator_holds_open_is_open_downstream() -> None:
    class Resource:
        is_open = True

    @contextlib.contextmanager
    def opened() -> Iterator[Resource]:
        resource = Resource()
        yield resource
        resource.is_open = False

    names: set[int] = set()

    def of_objects(number: int) -> Iterator[Resource]:
        resource = Resource()
        yield resource
        resource.is_open = False

    def of_names(number: int) -> Iterator[int]:
        """What is yielded is a constant, and says where the resource is."""
        with opened():
            names.add(number)
            yield number
            names.discard(number)

    objects = step_for(beam.FlatMap(of_objects).fn)
    objects.limit = 100
    found = all_of(objects, list(range(100)), lambda resource: resource.is_open)
    assert [is_open for is_open, _ in found] == [True] * 100
    by_name = step_for(beam.FlatMap(of_names).fn)
    by_name.limit = 100
    found = all_of(by_name, list(range(100)), lambda number: number in names)
    assert [is_open for is_open, _ in found] == [True] * 100


def _nothing_found(number: int) -> int:
    return next(each for each in (1, 2, 3) if each == number)


@pytest.mark.parametrize("limit", [1, 50])
@pytest.mark.parametrize(
    "transform",
    [
        beam.Map(_nothing_found),
        beam.Map(lambda n, _: _nothing_found(n), None),
        beam.MapTuple(lambda n: _nothing_found(n)),
        beam.Filter(_nothing_found),
        beam.FlatMap(_nothing_found),
        beam.FlatMap(lambda n: (_nothing_found(n) for _ in range(1))),
    ],
    ids=["map", "map with arguments", "map tuple", "filter", "flat map", "generator"],
)
def test_stop_iteration_is_an_error(transform: Any, limit: int) -> None:
    """It ends no loop of ours: no element may be lost in silence."""
    values: list[Any] = [4] * 100
    if "MapTuple" in transform.label:
        values = [(4,)] * 100
    step = step_for(transform.fn, Arguments(transform.args, transform.kwargs))
    step.limit = limit
    with pytest.raises((StopIteration, RuntimeError)):
        step.run(values, [origin(0)] * 100, Kind.OWN, Output())
    with pytest.raises((StopIteration, RuntimeError)):
        step.one_by_one(Output().send_one)(values[0], origin(0))


def test_new_results_wait_for_each_other() -> None:
    step = step_for(New())
    step.limit = 4
    output = Output()
    step.run([6, 3], [origin(0), origin(1)], Kind.OWN, output)
    assert output.sizes == [4, 2, 3]
