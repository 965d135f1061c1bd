"""Objects that say themselves how they are pickled: few of them are made at once."""

import datetime
import decimal
import pickle
import uuid
from typing import Any, NamedTuple

import apache_beam as beam
import pytest
from apache_beam.coders import FastPrimitivesCoder, IterableCoder
from apache_beam.transforms.window import GlobalWindows

from beam_spark_runner.harness.beam.step_choice import step_for
from beam_spark_runner.harness.values.constants import Kind
from beam_spark_runner.harness.values.opaque import OpaqueValues, is_opaque


class Large:
    """One byte as a pickle."""

    alive = 0

    def __init__(self) -> None:
        Large.alive += 1

    def __del__(self) -> None:
        Large.alive -= 1

    def __reduce__(self) -> Any:
        return Large, ()


class Plain(NamedTuple):
    n: int


@pytest.mark.parametrize(
    "value",
    [
        *(1, "text", None, (1, b"two"), [1], object(), uuid.UUID(int=1), decimal.Decimal(1)),
        *(Plain(1), beam.Row(a=1), ("key", Plain(2)), ("key", beam.Row(a=1))),
        datetime.date(2000, 1, 1),
    ],
)
def test_most_values_are_about_as_large_as_their_bytes(value: Any) -> None:
    assert not is_opaque(value)


def test_a_reduce_in_python_tells_nothing() -> None:
    assert is_opaque(Large())
    assert is_opaque((1, Large()))


def test_a_generator_gives_them_out_one_by_one() -> None:
    step = step_for(beam.FlatMap(lambda n: ((n, Large()) for _ in range(100))).fn)
    step.limit = 50
    count = most = 0

    class Output:
        def send(self, results: Any, origins: Any, kind: Kind, *, are_values: bool) -> None:
            raise AssertionError(f"{len(results)} have waited")

        def send_one(self, result: Any, origin: Any) -> None:
            nonlocal count, most
            count += 1
            most = max(most, Large.alive)

    step.run([1, 2], [GlobalWindows.windowed_value(None)] * 2, Kind.OWN, Output())
    assert count == 200
    assert most <= 4


def test_a_group_decodes_them_as_they_are_asked_for() -> None:
    values = OpaqueValues([pickle.dumps(Large())] * 100, pickle.loads)
    most = 0
    for _ in range(2):
        for value in values:
            assert isinstance(value, Large)
            most = max(most, Large.alive)
    assert most <= 2
    assert len(values) == 100
    assert isinstance(values[-1], Large)
    assert len(values[10:20]) == 10
    with pytest.raises(IndexError):
        values[100]


@pytest.mark.parametrize(
    "coder", [FastPrimitivesCoder(), IterableCoder(FastPrimitivesCoder())], ids=str
)
def test_a_group_may_continue_as_it_is(coder: Any) -> None:
    values = OpaqueValues([pickle.dumps(n) for n in range(3)], pickle.loads)
    assert list(coder.decode(coder.encode(values))) == [0, 1, 2]
    assert pickle.loads(pickle.dumps(values)) == [0, 1, 2]
