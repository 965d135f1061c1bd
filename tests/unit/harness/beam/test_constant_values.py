"""Which values cannot change, by their type."""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.harness.values.constants import is_constant
from tests.unit.harness.beam.step_outputs import Row


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
