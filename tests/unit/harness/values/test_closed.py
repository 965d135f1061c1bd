"""Functions that keep no reference to their results are distinguished from those that may."""

import dataclasses
import json
import math
import operator
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.internal import pickler
from apache_beam.transforms.window import TimestampedValue
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.harness.values.closed import Closed

LIST: list[int] = []
NUMBER = 3


def _add(n: int, more: int) -> int:
    return n + more + NUMBER


def _factorial(n: int) -> int:
    return n * _factorial(n - 1) if n else 1


def _gives_list(n: int) -> list[int]:
    LIST.append(n)
    return LIST


def _variable(start: Any) -> Callable[[Any], Any]:
    return lambda value: (value, start)


def _rebinding() -> Callable[[Any], Any]:
    last: Any = None

    def swap(value: Any) -> Any:
        nonlocal last
        last, before = [value], last
        return before

    return swap


def _rebinding_deeper() -> Callable[[Any], Any]:
    last: Any = None

    def swap(value: Any) -> Any:
        def inner() -> Any:
            nonlocal last
            last, before = [value], last
            return before

        return inner()

    return swap


def _imports(value: Any) -> Any:
    import sys

    return sys.modules


def _sets_global(value: Any) -> Any:
    global LIST
    LIST = [value]
    return LIST


def _makes_class(value: Any) -> Any:
    class Made:
        kept = value

    return Made


def _generates(value: Any) -> Any:
    made: list[Any] = []
    while True:
        made.append(value)
        yield made


async def _awaited(value: Any) -> Any:
    return value


async def _generates_awaited(value: Any) -> Any:
    yield value


def _names_a_module_as_what_is_in_it(value: Any) -> Any:
    pi = math
    return value, pi


def _shadowed() -> Callable[[Any], Any]:
    space: dict[str, Any] = {}
    exec("made = []\ndef sorted(v): made.append(v); return made\nf = lambda v: sorted(v)", space)
    function: Callable[[Any], Any] = space["f"]
    return function


def _named_as_a_method() -> Callable[[Any], Any]:
    space: dict[str, Any] = {}
    exec("def count(v): return v\nf = lambda v: count(v)", space)
    function: Callable[[Any], Any] = space["f"]
    return function


GIVES_FIVE, GIVES_LIST = _variable(5), _variable([])  # of one code


@pytest.mark.parametrize(
    "function",
    [
        lambda n: n + 1,
        lambda n: (n, NUMBER),
        lambda n: _add(n, 1),
        lambda n: _factorial(n),
        _named_as_a_method(),
        lambda word: (word, 1),
        lambda pair: {"key": pair[0], "values": [pair[1]]},
        lambda text: [part.strip().lower() for part in text.split(",")],
        lambda text: {part: len(part) for part in text.split()},
        lambda n: (x for x in range(n)),
        lambda n: sorted(range(n), key=lambda x: -x),
        lambda n, by=2: n * by,
        lambda n, *, by=(2, "x"): [n, by],
        lambda n: TimestampedValue((n, 1), n),
        lambda n: beam.window.TimestampedValue(n, n),
        lambda n: beam.transforms.window.TimestampedValue(n, n),
        lambda text: json.loads(text),
        lambda text: re.findall(r"\w+", text),
        lambda n: math.sqrt(n) * math.pi,
        _variable(5),
        _variable(("a", ("b", 1.5))),
        lambda n: (lambda: [n])(),
        lambda n: [last for each in range(n) if (last := each) or (lambda: last)()],
        str,
        len,
        str.upper,
        dict.items,
        math.floor,
        json.loads,
        operator.itemgetter(1),
    ],
)
def test_closed(function: Callable[[Any], Any]) -> None:
    for each in (function, pickler.loads(pickler.dumps(function))):
        closed = Closed.of(each)
        assert closed
        assert closed.holds()


@pytest.mark.parametrize(
    "function",
    [
        lambda n: LIST,
        lambda n: (GIVES_FIVE(n), GIVES_LIST(n)),
        lambda n: _gives_list(n),
        lambda n: n.buffer,
        lambda n: n.__class__,
        lambda n: [each.buffer for each in n],
        lambda n: (n.count(1), LIST),
        lambda n: (lambda: LIST)(),
        lambda n: getattr(n, "buffer"),  # noqa: B009
        lambda n: globals()["LIST"],
        lambda n: json.encoder,
        lambda n: json,
        lambda n: beam.window,
        lambda n: no_such_name,  # type: ignore[name-defined]  # noqa: F821
        lambda n, kept=[]: kept,
        lambda n, *, kept={}: kept,
        _variable([]),
        _variable((1, [])),
        _rebinding(),
        _rebinding_deeper(),
        _imports,
        _sets_global,
        _makes_class,
        _generates,
        _awaited,
        _generates_awaited,
        _names_a_module_as_what_is_in_it,
        _shadowed(),
        partial(max, 1),
        [].append,
        dataclasses.astuple,
        operator.attrgetter("buffer"),
        type,
        id,
        vars,
    ],
)
def test_not_closed(function: Callable[[Any], Any]) -> None:
    assert not Closed.of(function)


def test_a_variable_that_is_not_bound_yet() -> None:
    def outer() -> Callable[[Any], Any]:
        def function(value: Any) -> Any:
            return later

        if NUMBER > 3:
            later = 1
        return function

    assert not Closed.of(outer())


@given(st.recursive(st.integers() | st.text(), lambda each: st.lists(each) | st.tuples(each)))
def test_results_are_new(value: Any) -> None:
    """What closed functions make of equal values is equal, and of different objects."""
    for function in (lambda n: [n], lambda n: {"n": [n]}, lambda n: [[n]] * 2):
        assert Closed.of(function)
        first, second = function(value), function(value)
        assert first == second
        assert first is not second


def test_variables_that_are_bound_again() -> None:
    space: dict[str, Any] = {"kept": None, "re": re}
    exec("f = lambda n: (n, kept)\ng = lambda n: re.findall(n, n)", space)
    first, second = Closed.of(space["f"]), Closed.of(space["g"])
    assert first
    assert second
    assert first.holds()
    assert second.holds()
    space["kept"] = []
    space["re"] = None
    assert not first.holds()
    assert not second.holds()


def test_a_variable_of_an_enclosing_function_that_is_bound_again() -> None:
    kept: Any = None

    def function(n: int) -> Any:
        return n, kept

    closed = Closed.of(function)
    assert closed
    assert closed.holds()
    kept = []
    assert not closed.holds()


def test_a_variable_of_an_enclosing_function_that_is_gone() -> None:
    function = _variable(5)
    closed = Closed.of(function)
    assert closed
    (cell,) = function.__closure__ or ()
    del cell.cell_contents
    assert not closed.holds()


def test_a_function_that_is_composed_of_many() -> None:
    def composed(inner: Callable[[int], int]) -> Callable[[int], int]:
        return lambda n: inner(n)

    function: Callable[[int], int] = lambda n: n  # noqa: E731
    for _ in range(2_000):
        function = composed(function)
    assert Closed.of(function) is None
