"""Groups whose keys and values have coders of every kind, as their types declare."""

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam

from tests.spark.random_pipelines.chain import Chain


class Point(NamedTuple):
    """A row."""

    x: int
    name: str
    z: float | None


beam.coders.registry.register_coder(Point, beam.coders.RowCoder)


@dataclass(frozen=True)
class _Type:
    """A type, what makes values of it, and whether they may be keys."""

    hint: Any
    make: Callable[[int], Any]
    is_key: bool = True


TYPES: dict[str, _Type] = {
    "floats": _Type(float, lambda n: n / 2),
    "strings": _Type(str, lambda n: "é" * (n % 5) + str(n)),
    "bytes": _Type(bytes, lambda n: b"\0" * (n % 5)),
    "bools": _Type(bool, lambda n: n % 3 == 1),
    "integers": _Type(int, lambda n: (n - 20) * 5 ** (n % 20)),
    "optional": _Type(str | None, lambda n: str(n) if n % 3 else None),
    "nested pairs": _Type(tuple[int, tuple[float, str]], lambda n: (n, (n / 4, str(n)))),
    "triples": _Type(tuple[int, bool, str], lambda n: (n, n % 2 == 0, "t" * (n % 4))),
    "rows": _Type(Point, lambda n: Point(n, str(n), n / 8 if n % 3 else None)),
    "iterables": _Type(Iterable[float], lambda n: [n / 2] * (n % 4), is_key=False),
    "pairs with iterables": _Type(
        tuple[str, Iterable[int]], lambda n: (str(n), [n] * (n % 4)), is_key=False
    ),
    "mappings": _Type(dict[str, int], lambda n: {str(n): n} if n % 3 else {}, is_key=False),
    "anything": _Type(Any, lambda n: [n, str(n), None][n % 3]),
}


def grouped(name: str, number: int) -> Chain:
    """Group by key where the values are of type ``name``, and the keys, if they can be.

    Args:
        name: one of ``TYPES``.
        number: says of which type the keys are otherwise.
    """
    values = TYPES[name]
    keys = values if values.is_key else TYPES[list(TYPES)[number]]
    make_key, make_value = keys.make, values.make
    typed = beam.Map(lambda n: (make_key(n % 4), make_value(n % 40)))
    return Chain(
        typed.with_output_types(tuple[keys.hint, values.hint]),  # type: ignore[name-defined]
        beam.GroupByKey(),
        beam.MapTuple(_digest).with_output_types(int),
    )


def _digest(key: Any, values: Iterable[Any]) -> int:
    """Return a number in which key and values count, and the order of values does not."""
    text = repr((_text(key), sorted(_text(value) for value in values)))
    return zlib.crc32(text.encode()) % 1_000


def _text(value: Any) -> str:
    """Return the same for a row in whatever class its coder makes of it."""
    if isinstance(value, (str, bytes, dict)) or not isinstance(value, Iterable):
        return repr(value)
    return repr([_text(each) for each in value])
