"""Which results may wait downstream of functions that cannot keep them."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.internal import pickler
from apache_beam.transforms.window import (
    TimestampedValue,
)

from beam_spark_runner.harness.beam.step_choice import Arguments, step_for
from beam_spark_runner.harness.values.constants import Kind
from tests.unit.harness.beam.step_outputs import Output, Row, Sent, origin


def _sent(transform: Any, values: list[Any], kind: Kind, *, are_side_inputs: bool = False) -> Sent:
    fn = pickler.loads(pickler.dumps(transform.fn))
    step = step_for(
        fn, Arguments(transform.args, transform.kwargs, transform.args if are_side_inputs else ())
    )
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


@pytest.mark.parametrize("table", [{1: "a", 2: (3, None)}, ["", "a", (3, None)]])
def test_results_of_a_lookup_in_a_side_input_of_plain_values_wait(table: Any) -> None:
    found = _sent(beam.Map(lambda n, of: of[n], table), [1, 2, 1], Kind.PLAIN, are_side_inputs=True)
    assert [results for results, _, _ in found.chunks] == [["a", (3, None), "a"]]
    pairs = _sent(
        beam.Map(lambda n, of: [n, of[n]], table), [1, 2], Kind.PLAIN, are_side_inputs=True
    )
    assert (pairs.chunks, pairs.alone) == ([([[1, "a"], [2, (3, None)]], Kind.NEW, True)], [])


@pytest.mark.parametrize("table", [{1: [1]}, {1: {}}, [[1], [1]]])
def test_results_of_a_lookup_in_a_side_input_that_has_lists_do_not_wait(table: Any) -> None:
    found = _sent(beam.Map(lambda n, of: of[n], table), [1, 1], Kind.PLAIN, are_side_inputs=True)
    assert (found.chunks, found.alone) == ([], [table[1], table[1]])


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
