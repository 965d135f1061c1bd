"""Coders of users that raise: the job fails, names a step, and shows the user's traceback.

They raise StopIteration, by which many loops of Python end as if all were done: then elements
would be lost.
"""

from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import Coder
from apache_beam.transforms.userstate import BagStateSpec

from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import HARNESSES, run

pytestmark = pytest.mark.grpc


class Text:
    """What ``FailingCoder`` encodes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


def raise_for_the_user() -> None:
    raise StopIteration("the user's own words")


class FailingCoder(Coder):  # type: ignore[misc]
    """Fails for one of many values."""

    def encode(self, value: Text) -> bytes:
        if value.text == "encode":
            raise_for_the_user()
        return value.text.encode()

    def decode(self, coded: bytes) -> Text:
        if coded == b"decode":
            raise_for_the_user()
        return Text(coded.decode())

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> type:
        return Text


beam.coders.registry.register_coder(Text, FailingCoder)


class Piled(beam.DoFn):  # type: ignore[misc]
    """Keeps values in a state, and reads them when many are there."""

    PILE = BagStateSpec("pile", FailingCoder())

    def process(
        self, element: tuple[int, str], pile: Any = beam.DoFn.StateParam(PILE)
    ) -> Iterator[int]:
        pile.add(Text(element[1]))
        if element[1] == "last":
            yield len(list(pile.read()))


def texts(p: beam.Pipeline, wrong: str) -> Any:
    """Many values, one of which does not go through its coder."""
    made = p | beam.Create([*map(str, range(40)), wrong, *map(str, range(40))], reshuffle=False)
    return made | "make" >> beam.Map(Text).with_output_types(Text)


def elements(p: beam.Pipeline, wrong: str) -> Any:
    return texts(p, wrong) | "cross" >> beam.Reshuffle() | "read" >> beam.Map(id)


def keys(p: beam.Pipeline, wrong: str) -> Any:
    pairs = texts(p, wrong) | "pair" >> beam.Map(lambda x: (x, 1)).with_output_types(
        tuple[Text, int]
    )
    return pairs | "group" >> beam.GroupByKey() | "read" >> beam.Map(lambda kv: len(kv[1]))


def values(p: beam.Pipeline, wrong: str) -> Any:
    pairs = texts(p, wrong) | "pair" >> beam.Map(lambda x: (1, x)).with_output_types(
        tuple[int, Text]
    )
    return pairs | "group" >> beam.GroupByKey() | "read" >> beam.Map(lambda kv: len(list(kv[1])))


def side_inputs(p: beam.Pipeline, wrong: str) -> Any:
    side = beam.pvalue.AsList(texts(p, wrong))
    return p | "main" >> beam.Create([0]) | "read" >> beam.Map(lambda _, all_: len(all_), side)


def states(p: beam.Pipeline, wrong: str) -> Any:
    """Many more than are kept as objects, so that the state is written and read."""
    texts = [*map(str, range(5_000)), wrong, *map(str, range(5_000)), "last"]
    made = p | beam.Create([(1, text) for text in texts])
    return made | "read" >> beam.ParDo(Piled())


ROLES: list[tuple[Callable[[beam.Pipeline, str], Any], dict[str, set[str]]]] = [
    (elements, {"encode": {"make"}, "decode": {"read", "cross"}}),
    (keys, {"encode": {"make", "pair"}, "decode": {"read", "group"}}),
    (values, {"encode": {"make", "pair"}, "decode": {"read", "group"}}),
    (side_inputs, {"encode": {"make"}, "decode": {"read"}}),
    (states, {"encode": {"read"}, "decode": {"read"}}),
]


@pytest.mark.parametrize("flags", HARNESSES)
@pytest.mark.parametrize("wrong", ["encode", "decode"])
@pytest.mark.parametrize(("build", "steps"), ROLES, ids=[role.__name__ for role, _ in ROLES])
def test_no_element_is_lost_in_silence(
    spark_session: Any,
    build: Callable[[beam.Pipeline, str], Any],
    steps: dict[str, set[str]],
    wrong: str,
    flags: tuple[str, ...],
) -> None:
    with pytest.raises(BundleFailedError) as raised:
        run(spark_session, lambda p: build(p, wrong), *flags)
    print(raised.value.step, "|", raised.value.cause)
    assert "the user's own words" in str(raised.value)
    assert "raise_for_the_user" in raised.value.traceback_text
    assert raised.value.step in steps[wrong]
