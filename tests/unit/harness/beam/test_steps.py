"""Loops over lists of values: the same results as one by one, in pieces of their origins."""

import contextlib
import dataclasses
import enum
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.internal import pickler
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms import core
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    GlobalWindows,
    IntervalWindow,
    Sessions,
    SlidingWindows,
    TimestampedValue,
    WindowFn,
)
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.harness.beam.calling import Calling
from beam_spark_runner.harness.beam.step_choice import step_for
from beam_spark_runner.harness.beam.steps import (
    AssigningWindows,
    Combined,
    Filtering,
    Mapped,
    MappedTuples,
)
from beam_spark_runner.harness.values.constants import Kind, is_constant


def origin(number: int) -> WindowedValue:
    return WindowedValue(None, number, (GlobalWindow(),))


Received = tuple[Any, int]


class Output:
    """What comes downstream of a step, each with the timestamp of its origin.

    ``take`` says what downstream makes of a result: what a coder would, for example.
    """

    def __init__(self, take: Callable[[Any], Any] = lambda result: result) -> None:
        self._take = take
        self.received: list[Received] = []
        self.sizes: list[int] = []  # of what came at once

    def send(
        self, results: list[Any], origins: list[WindowedValue], kind: Kind, *, are_values: bool
    ) -> None:
        assert results
        self.sizes.append(len(results))
        for result, each in zip(results, origins, strict=True):
            self.received.append((self._take(result), int(each.timestamp)))

    def send_one(self, result: Any, origin: WindowedValue) -> None:
        self.send([result], [origin], Kind.OWN, are_values=False)


def all_of(step: Any, values: list[Any], take: Callable[[Any], Any] | None = None) -> list[Any]:
    """Results with the timestamps of their origins, which are the positions of the values."""
    output = Output(take) if take else Output()
    step.run(values, [origin(place) for place in range(len(values))], Kind.OWN, output)
    return output.received


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
    (beam.FlatMap(range), Calling, lambda n: list(range(n))),
    (beam.FlatMap(lambda n: str(n)), Calling, lambda n: list(str(n))),
    (beam.ParDo(Repeat()), Calling, lambda n: [n] * n),
    (beam.ParDo(Never()), Calling, lambda n: []),
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
        (beam.FlatMap(lambda *n, **by: [_add(*n, **by)]), Calling, numbers, sums),
        (beam.Filter(lambda *n, **by: _add(*n, **by) > sums[2]), Filtering, numbers, [3, 4]),
    ]
    for transform, kind, values, expected in shapes:
        fn = pickler.loads(pickler.dumps(transform.fn))
        step = step_for(fn, args, kwargs)
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


class Row(NamedTuple):
    number: Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    number: Any


@dataclasses.dataclass
class Changeable:
    number: Any


class Color(enum.Enum):
    RED = 1


CONSTANTS: list[Any] = [
    *(None, 1, "a", b"a", 1.5, (), (1, ("a", (None,))), Color.RED),
    *(np.int64(1), Timestamp(1), frozenset([1]), Row(1), Frozen(1)),
]
CHANGEABLE: list[Any] = [
    *([], {}, set(), bytearray(), np.zeros(1), object(), iter(()), Changeable(1)),
    *((1, []), Row([]), Frozen([]), Frozen((1, {})), (1, Changeable(1))),
    *(beam.Row(a=1), frozenset([object()])),
]


@pytest.mark.parametrize(
    ("value", "expected"),
    [*((each, True) for each in CONSTANTS), *((each, False) for each in CHANGEABLE)],
    ids=lambda each: str(each) if isinstance(each, bool) else type(each).__name__,
)
def test_constants_are_known_by_type(value: Any, expected: bool) -> None:
    assert is_constant(value) == expected


@pytest.mark.parametrize("wrap", [lambda value: (value,), Row, Frozen])
def test_nesting_is_looked_at_to_a_depth(wrap: Callable[[Any], Any]) -> None:
    value: Any = 1
    for _ in range(3):
        value = wrap(value)
    assert is_constant(value, depth=2)
    assert not is_constant(value, depth=1)


@dataclasses.dataclass(frozen=True)
class Derived(Frozen):
    """Frozen, too, but what else it inherits is not looked at."""


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    number: Any


class Attributed(Row):
    """A named tuple whose instances have other attributes."""


@pytest.mark.parametrize(
    ("value", "expected"),
    [(Derived(1), False), (Slotted(1), True), (Slotted([]), False), (Attributed(1), False)],
    ids=["derived", "slots", "slots, changeable", "with attributes"],
)
def test_constants_of_rarer_types(value: Any, expected: bool) -> None:
    assert is_constant(value) == expected


def test_what_else_a_frozen_instance_holds_is_looked_at() -> None:
    value = Frozen(1)
    vars(value)["kept"] = []
    assert not is_constant(value)


def test_tuples_that_are_nested_without_end_are_no_constants() -> None:
    value: Any = ()
    for _ in range(10_000):
        value = (value, value)
    assert not is_constant(value)


# What is changed after it was given out, as a runner sees it that encodes each result at once.


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


class Announcing(Output):
    """Notes what is said of results that come at once."""

    def __init__(self) -> None:
        super().__init__()
        self.announced: list[tuple[list[Any], bool]] = []

    def send(self, results: Any, origins: Any, kind: Kind, *, are_values: bool) -> None:
        super().send(results, origins, kind, are_values=are_values)
        self.announced.append((results, are_values))


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


@pytest.mark.parametrize("count", range(18, 36))
@pytest.mark.parametrize("kind", [list, iter], ids=["list", "iterator"])
@pytest.mark.parametrize("limit", [1, 7, 8, 9, 20])
def test_results_of_a_call_are_all_there_in_order(count: int, kind: Any, limit: int) -> None:
    def process(number: int) -> Any:
        return kind([(number, place) if place % 5 else [place] for place in range(number)])

    step = Calling(process)
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
    step = Calling(lambda n: kind([n] * 2))
    step.limit = 4
    output = Output()
    step.run(list(range(9)), [origin(n) for n in range(9)], Kind.OWN, output)
    assert output.sizes == [4, 4, 4, 4, 2]
    assert output.received == [(n, n) for n in range(9) for _ in range(2)]


@pytest.mark.parametrize("limit", [1, 3, 20])
def test_an_iterator_that_begins_anew_after_its_end_is_read_once(limit: int) -> None:
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
        step = Calling(lambda _: Anew())
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
    step = step_for(transform.fn, transform.args, transform.kwargs)
    step.limit = limit
    with pytest.raises((StopIteration, RuntimeError)):
        step.run(values, [origin(0)] * 100, Kind.OWN, Output())
    with pytest.raises((StopIteration, RuntimeError)):
        step.one_by_one(Output().send_one)(values[0], origin(0))


def _assigned(
    step: AssigningWindows, values: list[Any], origins: list[WindowedValue]
) -> tuple[list[Any], list[WindowedValue]]:
    sent: list[tuple[Any, WindowedValue]] = []

    class Keeping(Output):
        def send(self, results: Any, origins: Any, kind: Kind, *, are_values: bool) -> None:
            assert are_values
            sent.extend(zip(results, origins, strict=True))

    step.run(values, origins, Kind.OWN, Keeping())
    at_once, sent = sent, []
    run_one = step.one_by_one(lambda result, origin: sent.append((result, origin)))
    for value, each in zip(values, origins, strict=True):
        run_one(value, each)
    assert [(value, list(each.windows)) for value, each in sent] == [
        (value, list(each.windows)) for value, each in at_once
    ]
    return [value for value, _ in sent], [each for _, each in sent]


@given(
    fn=st.one_of(
        st.builds(FixedWindows, st.integers(1, 7), st.integers(0, 6)),
        st.builds(SlidingWindows, st.integers(1, 9), st.integers(1, 4), st.integers(0, 3)),
        st.builds(Sessions, st.integers(1, 5)),
        st.just(GlobalWindows()),
    ),
    times=st.lists(st.integers(-20_000_000, 20_000_000), min_size=1),
    copies=st.integers(1, 3),
)
def test_assigned_windows(fn: Any, times: list[int], copies: int) -> None:
    windows = tuple(IntervalWindow(n, n + 1) for n in range(copies))
    origins = [WindowedValue(None, Timestamp(micros=time), windows) for time in times]
    values, assigned = _assigned(AssigningWindows(fn), list(times), origins)
    expected = [time for time in times for _ in windows]
    assert values == expected == [element.value for element in assigned]
    for time, element in zip(expected, assigned, strict=True):
        context = WindowFn.AssignContext(Timestamp(micros=time))
        assert element.timestamp_micros == time
        assert list(element.windows) == list(fn.assign(context))


def test_a_window_fn_that_looks_at_the_element() -> None:
    class ByLength(FixedWindows):  # type: ignore[misc]
        def assign(self, context: WindowFn.AssignContext) -> list[IntervalWindow]:
            return [IntervalWindow(0, len(context.element))]

    step = AssigningWindows(ByLength(10))
    _, assigned = _assigned(step, ["a", "abc"], [origin(1), origin(1)])
    assert [int(element.windows[0].end) for element in assigned] == [1, 3]


class Sent(Output):
    """Notes the kind of what comes at once, and what comes by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks: list[tuple[list[Any], Kind, bool]] = []
        self.alone: list[Any] = []

    def send(self, results: Any, origins: Any, kind: Kind, *, are_values: bool) -> None:
        self.chunks.append((results, kind, are_values))

    def send_one(self, result: Any, origin: WindowedValue) -> None:
        self.alone.append(result)


def _sent(transform: Any, values: list[Any], kind: Kind) -> Sent:
    fn = pickler.loads(pickler.dumps(transform.fn))
    step = step_for(fn, transform.args, transform.kwargs)
    step.limit = 100
    output = Sent()
    step.run(values, [origin(n) for n in range(len(values))], kind, output)
    return output


NUMBER = 5


@pytest.mark.parametrize("kind", list(Kind))
def test_results_of_a_closed_function_wait_whatever_they_are(kind: Kind) -> None:
    for transform in (
        beam.Map(lambda n: {"n": [n]}),
        beam.Map(lambda n, key: {key: [n]}, "n"),
    ):
        output = _sent(transform, [1, 2], kind)
        assert output.chunks == [([{"n": [1]}, {"n": [2]}], Kind.NEW, True)]
    stamped = _sent(beam.Map(lambda n: TimestampedValue([n], n)), [1, 2], kind)
    assert [(kind, are) for _, kind, are in stamped.chunks] == [(Kind.NEW, False)]
    numbers = _sent(beam.Map(lambda n: n + 1), [1, 2], kind)
    assert numbers.chunks == [([2, 3], Kind.PLAIN, True)]
    tuples = _sent(beam.MapTuple(lambda a, b: [a, b]), [(1, 2)], Kind.PLAIN)
    assert tuples.chunks == [([[1, 2]], Kind.NEW, True)]


def test_a_closed_function_may_return_what_others_have_if_it_gets_it() -> None:
    class Giving(list[int]):
        def index(self, *_: Any) -> Any:
            return self

    for kind in (Kind.OWN, Kind.CONSTANT):
        output = _sent(beam.Map(lambda n: n.index(1)), [Giving(), Giving()], kind)
        assert (output.chunks, output.alone) == ([], [[], []])
    shared: list[int] = []
    output = _sent(beam.Map(lambda n, more: more, shared), [1, 2], Kind.PLAIN)
    assert (output.chunks, output.alone) == ([], [shared, shared])


@pytest.mark.parametrize(
    ("results", "kind"),
    [
        ([1, "a", (1, None)], Kind.PLAIN),
        ([1, ((1, "a"), 2)], Kind.PLAIN),
        ([1, frozenset([1])], Kind.CONSTANT),
        ([Row(1), 2], Kind.CONSTANT),
    ],
)
def test_the_kind_of_results_that_were_looked_at(results: list[Any], kind: Kind) -> None:
    for transform in (
        beam.Map(lambda n: (NUMBER, results[n])[1]),
        beam.FlatMap(lambda n: [results[n], NUMBER]),
        beam.FlatMap(lambda n: (each for each in [NUMBER, results[n]])),
    ):
        output = _sent(transform, list(range(len(results))), Kind.PLAIN)
        assert [kind for _, kind, _ in output.chunks] == [kind]
        assert not output.alone


@pytest.mark.parametrize("kind", list(Kind))
def test_a_filter_that_may_keep_a_value_is_asked_one_by_one(kind: Kind) -> None:
    """Else a value that it changes later would not be what the next step gets."""
    before: list[list[int]] = []

    def changes_the_one_before(value: list[int]) -> bool:
        for each in before:
            each.append(0)
        before[:] = [value]
        return True

    constants = _sent(beam.Filter(lambda _: NUMBER), ["a", ("b", 1)], kind)
    assert constants.chunks == [(["a", ("b", 1)], kind, True)]
    if kind in (Kind.OWN, Kind.NEW):
        step = step_for(beam.Filter(changes_the_one_before).fn)
        output = Output(list)
        step.run([[1], [2]], [origin(0), origin(1)], kind, output)
        assert output.received == [([1], 0), ([2], 1)]
        closed = _sent(beam.Filter(lambda values: values.append(0) or True), [[1], [2]], Kind.NEW)
        assert closed.chunks == [([[1, 0], [2, 0]], Kind.NEW, True)]


class KeepingWindowFn(GlobalWindows):  # type: ignore[misc]
    """Like a user's, which sees elements and may keep them."""


def test_windows_are_assigned_at_once_where_that_is_the_same() -> None:
    def run(fn: WindowFn, values: list[Any], windows: tuple[Any, ...], kind: Kind) -> Sent:
        output = Sent()
        origins = [WindowedValue(None, 0, windows) for _ in values]
        AssigningWindows(fn).run(values, origins, kind, output)
        return output

    one, two = (GlobalWindow(),), (IntervalWindow(0, 1), IntervalWindow(1, 2))
    for fn, windows in ((GlobalWindows(), one), (KeepingWindowFn(), one), (GlobalWindows(), two)):
        assert run(fn, ["a"], windows, Kind.PLAIN).chunks
        assert run(fn, ["a"], windows, Kind.OWN).chunks
    for kind in (Kind.OWN, Kind.NEW):
        assert run(GlobalWindows(), [["a"]], one, kind).chunks
        assert run(KeepingWindowFn(), [["a"]], one, kind).alone == [["a"]]
        assert run(GlobalWindows(), [["a"]], two, kind).alone == [["a"], ["a"]]


def test_a_limit_that_sending_lowers_holds_at_once() -> None:
    """Results have turned out to be large: few may be in memory."""
    step = step_for(beam.FlatMap(lambda n: (each for each in range(n))).fn)
    step.limit = 50

    class Lowering(Output):
        def send(self, results: Any, origins: Any, kind: Kind, *, are_values: bool) -> None:
            super().send(results, origins, kind, are_values=are_values)
            step.limit = 1

    output = Lowering()
    values = [60, *[2] * 40]
    step.run(values, [origin(n) for n in range(len(values))], Kind.PLAIN, output)
    assert sum(output.sizes) == 140
    assert max(output.sizes[1:]) <= 2
