"""What callbacks may use if another process is to continue with them."""

import datetime
import functools
import json
import math
import operator
import sys
from collections.abc import Callable
from typing import Any

import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.metrics import Metrics
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.transforms.declarative.captures import Judgement, examine
from tests.unit.transforms.declarative import captured
from tests.unit.transforms.declarative.captured import (
    CACHE,
    LOGGER,
    NAMES,
    NUMBER,
    PAIR,
    PATTERN,
    Client,
    Colour,
    Config,
    Extended,
    Small,
    counts_down,
    decorated,
    double,
    examined,
    ping,
    uses_process,
)
from tests.unit.transforms.declarative.running import Run


def _safe() -> dict[str, Callable[..., Any]]:
    """Return functions of a process and its context that make safe callbacks."""
    text, number, pairs = "x", 5, (1, ("y", None, 1.5, b""))
    when, moment = datetime.date(2020, 1, 1), Timestamp(3)
    bound = math.floor
    colour = Colour.RED
    counter = Metrics.counter("a", "b")
    coder = VarIntCoder()

    def inner(value: Any) -> Any:
        return value, text

    return {
        "nothing": lambda s, c: lambda x: x,
        "a text of a closure": lambda s, c: lambda x: (x, text),
        "a number of a closure": lambda s, c: lambda x: x + number,
        "tuples of a closure": lambda s, c: lambda x: (x, pairs),
        "times": lambda s, c: lambda x: (when, moment),
        "a member of an enum": lambda s, c: lambda x: colour,
        "a global number": lambda s, c: lambda x: x + NUMBER,
        "global tuples and frozensets": lambda s, c: lambda x: x in NAMES,
        "a named tuple": lambda s, c: lambda x: PAIR.one,
        "a pattern": lambda s, c: lambda x: PATTERN.match(x),
        "a logger": lambda s, c: lambda x: LOGGER.info(x),
        "a metric": lambda s, c: lambda x: counter.inc(),
        "a coder": lambda s, c: coder.encode,
        "a module": lambda s, c: lambda x: math.floor(x),
        "a list of a module of Python's": lambda s, c: lambda x: sys.path,
        "a function of a module": lambda s, c: lambda x: captured.looks_up(x),
        "a class": lambda s, c: lambda x: Config.limit,
        "a class as the callback": lambda s, c: Client,
        "a method of a class": lambda s, c: Client.make,
        "builtin functions": lambda s, c: lambda x: len(str(x)),
        "a builtin function as the callback": lambda s, c: len,
        "a builtin function of a closure": lambda s, c: lambda x: bound(x),
        "a method of a text": lambda s, c: "{}".format,
        "an unbound method": lambda s, c: str.upper,
        "a function of Python's": lambda s, c: json.dumps,
        "a function": lambda s, c: double,
        "a function that is called": lambda s, c: lambda x: double(x),
        "functions that call each other": lambda s, c: counts_down,
        "a function of a closure": lambda s, c: lambda x: inner(x),
        "a decorated function": lambda s, c: decorated,
        "a partial": lambda s, c: functools.partial(operator.add, 1),
        "a partial with an argument by name": lambda s, c: functools.partial(inner, value=1),
        "an item getter": lambda s, c: operator.itemgetter(1),
        "a comprehension": lambda s, c: lambda x: [each + number for each in x],
        "own variables that change": lambda s, c: _counts_itself,
        "an import": lambda s, c: _imports,
        "a class that it defines": lambda s, c: _defines,
        "a default": lambda s, c: lambda x, by=number: x + by,
        "the context": lambda s, c: lambda x: c.output((c.key, x)),
        "a method of the context": lambda s, c: c.output,
        "a state": lambda s, c: lambda x: s.state.read(),
        "a method of a state": lambda s, c: s.state.write,
        "a map and a timer": lambda s, c: lambda x: (s.entries.get(x), s.timer.set(x)),
        "a state of a closure": lambda s, c: (lambda of: lambda x: of.read())(s.state),
        "a variable": lambda s, c: (lambda of: lambda x: of.get())(
            c.declare_variable(VarIntCoder(), "v", int)
        ),
        "an attribute": lambda s, c: lambda x: x + s.limit,
        "attributes of setup and of the class": lambda s, c: lambda x: (s.made, s.of_class),
        "an attribute with a function": lambda s, c: lambda x: s.double(x),
        "an attribute in a comprehension": lambda s, c: lambda x: [s.limit for _ in x],
        "an attribute in a function that it defines": lambda s, c: lambda x: lambda: s.words,
        "a Shared": lambda s, c: lambda x: s.table[x],
        "a method": lambda s, c: s.helper,
        "a method that is called": lambda s, c: lambda x: s.helper(x),
        "a method that calls itself": lambda s, c: s.recurses,
        "a property": lambda s, c: lambda x: s.total,
        "a static method": lambda s, c: s.static,
        "a method of the process's class": lambda s, c: lambda x: s.of_kind(x),
        "an inherited method": lambda s, c: s.inherited_well,
        "the class of the process": lambda s, c: lambda x: s.__class__.__name__,
        "a chain": lambda s, c: (
            c.declare_chain(lambda x: s.state.read()).then_apply(double).finish()
        ),
        "a declared callback": lambda s, c: (lambda of: lambda x: s.state.read().then_accept(of))(
            c.declare("other", lambda x: CACHE)
        ),
    }


def _counts_itself(value: int) -> list[int]:
    total = 0

    def add(by: int) -> int:
        nonlocal total
        total += by
        return total

    return [add(each) for each in range(value)]


def _imports(value: Any) -> Any:
    import json as library

    return library.loads(value)


def _defines(value: Any) -> Any:
    class Local:
        found = value
        number = NUMBER

    return Local.found


@pytest.mark.parametrize("make", [pytest.param(make, id=id_) for id_, make in _safe().items()])
def test_what_is_safe(make: Callable[..., Any]) -> None:
    assert examined(make) == Judgement()


def test_a_process_may_be_passed_on_if_all_of_it_is_safe() -> None:
    assert examined(lambda s, c: lambda x: uses_process(s), Small).is_safe
    assert examined(lambda s, c: functools.partial(uses_process, s), Small).is_safe


def test_declared_callbacks_are_found_and_not_examined() -> None:
    process = Extended()
    context = Run(process).declared.context
    context._is_sealed = False
    bad = context.declare("bad", lambda _: CACHE)
    pair = bad, context.declare("good", double)
    found = examine(lambda _: process.state.read().then_conditionally_accept(*pair))
    assert found.judged_now().is_safe
    assert found.callbacks == {"bad": bad, "good": pair[1]}


def _changing(before: Any, after: Any) -> tuple[Callable[..., Any], Callable[[], None]]:
    value = before

    def callback(_: Any) -> Any:
        return value

    def change() -> None:
        nonlocal value
        value = after

    return callback, change


@pytest.mark.parametrize(
    ("before", "after", "is_safe"),
    [
        pytest.param("x", "x", True, id="the same"),
        pytest.param((1, "y" * 50), (1, "".join(["y"] * 50)), True, id="an equal value"),
        pytest.param(math.nan, math.nan, True, id="no number"),
        pytest.param("x", "y", False, id="another text"),
        pytest.param(None, ["x"], False, id="nothing, and then a list"),
        pytest.param(1, True, False, id="another type"),
        pytest.param((1, 2), (1, 2, 3), False, id="a longer tuple"),
        pytest.param((1,), (1.0,), False, id="another type in a tuple"),
        pytest.param(0.0, -0.0, False, id="another sign"),
        pytest.param(double, ping, False, id="another function"),
    ],
)
def test_variables_must_keep_their_values(before: Any, after: Any, is_safe: bool) -> None:
    callback, change = _changing(before, after)
    found = examine(callback)
    assert found.judged_now().is_safe
    change()
    assert found.judged_now().is_safe is is_safe


def test_the_judgement_says_which_variable_has_changed() -> None:
    process = Small()
    found = examine(lambda _: process.limit)
    process.limit = 8
    assert found.judged_now().capture == "process.limit"
    assert "changed" in found.judged_now().why
    process.limit = 7
    assert found.judged_now().is_safe


def test_values_that_come_later_are_changes() -> None:
    process = Small()
    found = examine(lambda _: process.bound)
    vars(process)["bound"] = 4  # in front of that of the class
    assert found.judged_now().capture == "process.bound"


def test_global_variables_must_keep_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examine(lambda _: NUMBER)
    monkeypatch.setitem(globals(), "NUMBER", 4)
    assert found.judged_now().capture == "NUMBER"


def test_deep_programs_need_little_time() -> None:
    """Each function is examined once, although there are two ways to each."""
    one = other = double
    for _ in range(60):
        one, other = _calls(one, other), _calls(other, one)
    assert examine(one).judged_now().is_safe


def _calls(one: Any, other: Any) -> Any:
    return lambda value: one(other(value))
