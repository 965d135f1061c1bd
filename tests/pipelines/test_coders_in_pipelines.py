"""Every kind of key and value across the edges of stages, wherever the user's code runs."""

import datetime
import decimal
import enum
import typing
from collections.abc import Iterable
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from tests.harvest import HARNESSES, RARE_HARNESSES, harvest

pytestmark = pytest.mark.grpc


class Point(NamedTuple):
    x: int
    label: str | None
    weights: typing.Sequence[float]


beam.coders.registry.register_coder(Point, beam.coders.RowCoder)


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


class Pickled:
    """Only a pickle knows how to write it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pickled) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Pickled({self.text!r})"


KINDS: dict[str, tuple[Any, list[Any]]] = {
    "float": (float, [0.5, -1.0, 1e300]),
    "int": (int, [0, -1, 300, 1 << 40]),
    "bool": (bool, [True, False]),
    "bytes": (bytes, [b"", b"x" * 200]),
    "str": (str, ["", "ü", "y" * 200]),
    "nullable": (float | None, [0.5, None]),
    "tuple of one": (tuple[float], [(0.5,), (1.5,)]),
    "tuple": (tuple[float, int], [(0.5, 1), (-0.5, 2)]),
    "tuple of three": (tuple[float, str, bool], [(0.5, "a", True), (1.5, "", False)]),
    "tuple of tuples": (
        tuple[tuple[int, float], tuple[str, tuple[bytes, float]]],
        [((1, 0.5), ("a", (b"b", 1.5)))],
    ),
    # The shape of a sized restriction's key.
    "like a restriction": (tuple[int, tuple[int, int]], [(1, (2, 3)), (300, (400, 500))]),
    "row": (Point, [Point(1, None, [0.5]), Point(2, "a", [])]),
    "any": (Any, [1, "a", (0.5, None)]),
    "enum": (Colour, [Colour.RED, Colour.GREEN]),
}
"""Types that may be those of keys, with some values."""
VALUES_ONLY: dict[str, tuple[Any, list[Any]]] = {
    "timestamp": (Timestamp, [Timestamp(1), Timestamp(micros=1_500_000)]),
    "pickled": (Pickled, [Pickled("a"), Pickled("b" * 200)]),
    "floats": (Iterable[float], [[0.5, 1.5], []]),
    "pairs": (Iterable[tuple[float, int]], [[(0.5, 1), (1.5, 2)], []]),
    "iterables": (Iterable[Iterable[float]], [[[0.5], []], []]),
    "list": (list[float], [[0.5], []]),
    "dict": (dict[str, float], [{"a": 0.5}, {}]),
    "set": (set[int], [{1, 2}]),
    "decimal": (decimal.Decimal, [decimal.Decimal("1.50")]),
    "date": (datetime.date, [datetime.date(2024, 1, 2)]),
    "array": (np.ndarray, [np.array([0.5, 1.5])]),
}


def plain(value: Any) -> Any:
    """Without what says only how a value came: iterables are lists, rows are tuples."""
    if isinstance(value, (np.ndarray, list)) or type(value).__name__.endswith(
        ("Iterable", "Values")
    ):
        return [plain(each) for each in value]
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return value


HASHABLE = {label: kind for label, kind in KINDS.items() if label != "row"}
"""What a multimap may have for keys."""


def typed(pcollection: Any, label: str, kind: Any) -> Any:
    return pcollection | label >> beam.Map(lambda x: x).with_output_types(kind)


def pair_of(key: Any, value: Any) -> Any:
    return beam.typehints.Tuple[key, value]


def shown(label: str, *, grouped: bool = False) -> Any:
    def show(element: Any) -> str:
        if grouped:
            key, values = element
            return repr((plain(key), sorted(plain(list(values)), key=repr)))
        return repr(plain(element))

    return f"{label}: show" >> beam.Map(show)


def expected_groups(pairs: list[tuple[Any, Any]]) -> list[str]:
    groups: dict[str, tuple[Any, list[Any]]] = {}
    for key, value in pairs:
        groups.setdefault(repr(key), (key, []))[1].append(value)
    return sorted(
        repr((plain(key), sorted(plain(values), key=repr))) for key, values in groups.values()
    )


@pytest.mark.parametrize("flags", HARNESSES)
def test_keys_of_every_kind_are_grouped(spark_session: Any, flags: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        found = {}
        for label, (kind, values) in KINDS.items():
            pairs = [(value, float(n)) for n, value in enumerate(values * 2)]
            made = p | label >> beam.Create(pairs, reshuffle=False)
            grouped = typed(made, f"{label}: typed", pair_of(kind, float)) | (
                f"{label}: group" >> beam.GroupByKey()
            )
            found[label] = grouped | shown(label, grouped=True)
        return found

    found = harvest(spark_session, build, *flags)
    for label, (_, values) in KINDS.items():
        pairs = [(value, float(n)) for n, value in enumerate(values * 2)]
        assert found[label] == expected_groups(pairs), label


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_values_of_every_kind_are_grouped(spark_session: Any, flags: tuple[str, ...]) -> None:
    kinds = {**KINDS, **VALUES_ONLY}

    def build(p: beam.Pipeline) -> dict[str, Any]:
        found = {}
        for label, (kind, values) in kinds.items():
            made = p | label >> beam.Create([(0.5, value) for value in values], reshuffle=False)
            grouped = typed(made, f"{label}: typed", pair_of(float, kind)) | (
                f"{label}: group" >> beam.GroupByKey()
            )
            found[label] = grouped | shown(label, grouped=True)
        return found

    found = harvest(spark_session, build, *flags)
    for label, (_, values) in kinds.items():
        assert found[label] == expected_groups([(0.5, value) for value in values]), label


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_groups_cross_another_border(spark_session: Any, flags: tuple[str, ...]) -> None:
    """As KV<K, Iterable<V>>, in windows, and as the values of another group."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        found = {}
        for label, (kind, values) in KINDS.items():
            pairs = [(value, value) for value in values]
            made = p | label >> beam.Create(pairs, reshuffle=False)
            stamped = made | f"{label}: stamp" >> beam.Map(lambda kv: TimestampedValue(kv, 1))
            grouped = (
                typed(stamped, f"{label}: typed", pair_of(kind, kind))
                | f"{label}: window" >> beam.WindowInto(FixedWindows(10))
                | f"{label}: group" >> beam.GroupByKey()
            )
            found[label] = (
                grouped | f"{label}: cross" >> beam.Reshuffle() | shown(label, grouped=True)
            )
            again = grouped | f"{label}: regroup" >> beam.GroupByKey()
            found[f"{label} again"] = again | shown(f"{label} again", grouped=True)
        return found

    found = harvest(spark_session, build, *flags)
    for label, (_, values) in KINDS.items():
        assert found[label] == expected_groups([(value, value) for value in values]), label
        assert found[f"{label} again"] == expected_groups([(value, [value]) for value in values])


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_bare_elements_of_every_kind_cross(spark_session: Any, flags: tuple[str, ...]) -> None:
    kinds = {**KINDS, **VALUES_ONLY}

    def build(p: beam.Pipeline) -> dict[str, Any]:
        found = {}
        for label, (kind, values) in kinds.items():
            made = p | label >> beam.Create(values, reshuffle=False)
            crossed = typed(made, f"{label}: typed", kind) | f"{label}: cross" >> beam.Reshuffle()
            found[label] = crossed | shown(label)
        return found

    found = harvest(spark_session, build, *flags)
    for label, (_, values) in kinds.items():
        assert found[label] == sorted(repr(plain(value)) for value in values), label


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_side_inputs_of_every_kind(spark_session: Any, flags: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        found = {}
        main = p | beam.Create([0])
        for label, (kind, values) in HASHABLE.items():
            made = p | label >> beam.Create(values, reshuffle=False)
            side = typed(made, f"{label}: typed", kind)
            pairs = typed(
                side | f"{label}: pair" >> beam.Map(lambda x: (x, x)),
                f"{label}: typed pair",
                pair_of(kind, kind),
            )
            read = beam.Map(
                lambda _, listed, several, values: repr(
                    (
                        sorted(map(repr, plain(listed))),
                        sorted(repr(plain(list(several[each]))) for each in values),
                    )
                ),
                beam.pvalue.AsList(side),
                beam.pvalue.AsMultiMap(pairs),
                values,
            )
            found[label] = main | f"{label}: read" >> read
        return found

    found = harvest(spark_session, build, *flags)
    for label, (_, values) in HASHABLE.items():
        texts = (
            sorted(repr(plain(value)) for value in values),
            sorted(repr([plain(value)]) for value in values),
        )
        assert found[label] == [repr(texts)], label
