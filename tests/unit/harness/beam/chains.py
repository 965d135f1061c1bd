"""Random chains of steps whose user functions do what Beam forbids, and its harness forgives.

They change elements, keep references to them and change them later, yield an object twice or a
part of what they got. Results must not depend on more than the order in which Beam's own
operations process elements, so each collection knows what it consists of: constants and other
values overtake each other, and where there are both, no step is added that depends on the order.
"""

import contextlib
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.coders import Coder
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    IntervalWindow,
    NonMergingWindowFn,
    SlidingWindows,
    TimestampedValue,
    WindowFn,
)
from apache_beam.utils.windowed_value import WindowedValue

CONSTANTS = "constants"
LISTS = "lists"
CHANGEABLE = "changeable"  # no constants: lists, dicts, and tuples with such parts
MIXED = "mixed"

READ: list[None] = []  # a global variable that may change: what reads it is not closed
OPEN: Counter[str] = Counter()


def change(value: Any) -> None:
    """Change a value in place, if anything in it can be changed."""
    if type(value) is list:
        value.append("+")
    elif type(value) is dict:
        value["+"] = len(value)
    elif isinstance(value, tuple):
        for part in value:
            change(part)


def second_of(value: Any) -> int:
    return len(repr(value)) % 30


class Step(NamedTuple):
    """A step that may be added to a chain.

    Attributes:
        apply: Adds it to a collection, by a label, and returns its outputs.
        gives: What the outputs consist of, by what the input does.
        takes: What the input may consist of.
        needs_order: Whether results depend on the order of elements.
        factor: How many results there are for each element.
        stamps: Whether results get timestamps, so that the window fn of the input is called.
    """

    apply: Callable[[Any, str], Sequence[Any]]
    gives: Callable[[str], Sequence[str]]
    takes: Sequence[str] = (CONSTANTS, LISTS, CHANGEABLE, MIXED)
    needs_order: bool = False
    factor: int = 1
    stamps: bool = False


def _same(of: str) -> Sequence[str]:
    return (of,)


def _always(*kinds: str) -> Callable[[str], Sequence[str]]:
    return lambda of: kinds


def _wrapped(of: str) -> Sequence[str]:
    return (CHANGEABLE if of == LISTS else of,)


def _mapped(make: Callable[[], Any]) -> Callable[[Any, str], Sequence[Any]]:
    return lambda collection, label: (collection | label >> beam.Map(make()),)


def _filtered(make: Callable[[], Any]) -> Callable[[Any, str], Sequence[Any]]:
    return lambda collection, label: (collection | label >> beam.Filter(make()),)


def _flat(make: Callable[[], Any]) -> Callable[[Any, str], Sequence[Any]]:
    return lambda collection, label: (collection | label >> beam.FlatMap(make()),)


def _done(make: Callable[[], beam.DoFn]) -> Callable[[Any, str], Sequence[Any]]:
    return lambda collection, label: (collection | label >> beam.ParDo(make()),)


def _windowed(make: Callable[[], WindowFn]) -> Callable[[Any, str], Sequence[Any]]:
    return lambda collection, label: (collection | label >> beam.WindowInto(make()),)


# Functions by name are pickled by name, so that they read the variables of this module.


def changed(value: Any) -> Any:
    change(value)
    return value


def passed_on(value: Any) -> Any:
    return value if not READ else None


def in_list(value: Any) -> list[Any]:
    return [value, *READ]


def in_pair(value: Any) -> tuple[Any, int]:
    return value, len(READ)


def with_defaults(value: Any, first: Any = "first", second: Any = ()) -> list[Any]:
    return [value, first, *second]


def twice(value: Any) -> Iterator[Any]:
    yield value
    yield value


def before_and_after(value: Any) -> Iterator[Any]:
    yield value
    change(value)
    yield value
    change(value)


def growing(value: Any) -> Iterator[list[Any]]:
    row: list[Any] = []
    for number in range(12):
        row.append((number, value))
        yield row
    row.clear()


def many(value: Any) -> Iterator[Any]:
    text = repr(value)
    for number in range(20):
        yield text, number


def listed(value: Any) -> list[Any]:
    return [value, [value], value]


def parts(value: Any) -> Iterator[Any]:
    yield value
    for part in list(value) if isinstance(value, (list, tuple)) else [value]:
        yield part
        change(part)
    change(value)
    yield (value,)


def some_stamped(value: Any) -> Any:
    return TimestampedValue(value, second_of(value)) if second_of(value) % 2 else value


def tagged(value: Any) -> Iterator[Any]:
    yield value
    yield TaggedOutput("wrapped", [value])
    yield TaggedOutput("text", repr(value))
    change(value)
    yield TaggedOutput("text", TimestampedValue(repr(value), second_of(value)))
    yield value


def opened(value: Any) -> Iterator[str]:
    """The name of something that is open until the function continues."""
    name = f"<{zlib.crc32(repr(value).encode())}>"
    with _open(name):
        yield name
        yield f"{name} again"


def opened_inside(value: Any) -> Iterator[str]:
    """The same in another generator, after a name of nothing that is open."""
    yield "<>"
    yield from opened(value)


@contextlib.contextmanager
def _open(name: str) -> Iterator[None]:
    OPEN[name] += 1
    yield
    OPEN[name] -= 1


def seen_open(value: Any) -> tuple[Any, bool]:
    return value, all(OPEN[name] for name in re.findall(r"<\w*>", repr(value)))


def _keeping_results() -> Callable[[Any], list[Any]]:
    kept: list[Any] = []

    def keep(value: Any) -> list[Any]:
        for each in kept[-2:]:
            change(each)
        kept.append([value])
        return kept[-1]  # type: ignore[no-any-return]

    return keep


def _reusing() -> Callable[[Any], list[Any]]:
    buffer: list[Any] = []

    def put(value: Any) -> list[Any]:
        buffer[:] = [value]
        return buffer

    return put


def _keeping_values() -> Callable[[Any], bool]:
    kept: list[Any] = []

    def asked(value: Any) -> bool:
        for each in kept[-2:]:
            change(each)
        kept.append(value)
        return len(kept) % 4 != 0

    return asked


class Keeping(beam.DoFn):  # type: ignore[misc]
    """Passes values on, and changes them when it gets later ones."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def process(self, value: Any) -> Iterator[Any]:
        for each in self._kept[-3:]:
            change(each)
        self._kept.append(value)
        yield value
        change(value)


class Late(beam.DoFn):  # type: ignore[misc]
    """Gives the values that it got before, as they are now."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def process(self, value: Any) -> Iterable[Any]:
        self._kept.append(value)
        return self._kept[-2:-1]

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for value in self._kept[-1:]:
            yield WindowedValue(value, 7, (GlobalWindow(),))


class Batching(beam.DoFn):  # type: ignore[misc]
    """Manual batching by one list."""

    def __init__(self) -> None:
        self._batch: list[Any] = []

    def process(self, value: Any) -> Iterator[list[Any]]:
        self._batch.append(value)
        if len(self._batch) == 3:
            yield self._batch
            self._batch.clear()


class AtTime(beam.DoFn):  # type: ignore[misc]
    """Run by Beam's own operation in either case."""

    def process(self, value: Any, at: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        yield value, at.micros


class InEachWindow(beam.DoFn):  # type: ignore[misc]
    """The same; called once for each window."""

    def process(self, value: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        yield value, str(window)
        change(value)


class OpenAtTime(beam.DoFn):  # type: ignore[misc]
    """The same, with something that is open until ``process`` continues."""

    def process(self, value: Any, at: Any = beam.DoFn.TimestampParam) -> Iterator[str]:
        yield from opened(value)


class ByContent(NonMergingWindowFn):  # type: ignore[misc]
    """Looks at values, and changes them."""

    def assign(self, context: WindowFn.AssignContext) -> list[IntervalWindow]:
        start = second_of(context.element)
        change(context.element)
        return [IntervalWindow(start, start + 10)]

    def get_window_coder(self) -> Coder:
        return IntervalWindowCoder()


class KeepingWindows(ByContent):
    """Changes values later, too."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def assign(self, context: WindowFn.AssignContext) -> list[IntervalWindow]:
        for each in self._kept[-2:]:
            change(each)
        self._kept.append(context.element)
        return super().assign(context)


def _tagged(collection: Any, label: str) -> Sequence[Any]:
    outputs = collection | label >> beam.FlatMap(tagged).with_outputs("wrapped", "text", main="all")
    return outputs.all, outputs.wrapped, outputs.text


STEPS: dict[str, Step] = {
    # Closed functions.
    "same": Step(_mapped(lambda: lambda v: v), _same),
    "list": Step(_mapped(lambda: lambda v: [v]), _always(LISTS)),
    "dict": Step(_mapped(lambda: lambda v: {"v": v, "w": [v]}), _always(CHANGEABLE)),
    "pair": Step(_mapped(lambda: lambda v: (v, 1)), _wrapped),
    "text": Step(_mapped(lambda: lambda v: repr(v)), _always(CONSTANTS)),
    "append": Step(_mapped(lambda: lambda v: v.append(1) or v), _same, (LISTS,)),
    "filter": Step(_filtered(lambda: lambda v: len(repr(v)) % 3), _same),
    "append in filter": Step(_filtered(lambda: lambda v: v.append(0) or True), _same, (LISTS,)),
    "stamp": Step(
        _mapped(lambda: lambda v: TimestampedValue([v], len(repr(v)) % 30)),
        _always(LISTS),
        stamps=True,
    ),
    # Functions that are not closed.
    "changed": Step(_mapped(lambda: changed), _same),
    "passed on": Step(_mapped(lambda: passed_on), _same),
    "in list": Step(_mapped(lambda: in_list), _always(LISTS)),
    "in pair": Step(_mapped(lambda: in_pair), _wrapped),
    "defaults": Step(_mapped(lambda: with_defaults), _always(LISTS)),
    "defaults of FlatMap": Step(_flat(lambda: with_defaults), _always(MIXED), factor=2),
    "first default given": Step(
        lambda collection, label: (collection | label >> beam.Map(with_defaults, "given"),),
        _always(LISTS),
    ),
    "second default given": Step(
        lambda collection, label: (collection | label >> beam.Map(with_defaults, second=[1]),),
        _always(LISTS),
    ),
    "reused": Step(_mapped(_reusing), _always(LISTS)),
    "keeping results": Step(_mapped(_keeping_results), _always(LISTS), needs_order=True),
    "keeping filter": Step(_filtered(_keeping_values), _same, needs_order=True),
    "some stamped": Step(_mapped(lambda: some_stamped), _same, stamps=True),
    "twice": Step(_flat(lambda: twice), _same, factor=2),
    "before and after": Step(_flat(lambda: before_and_after), _same, factor=2),
    "growing": Step(_flat(lambda: growing), _always(LISTS), factor=12),
    "many": Step(_flat(lambda: many), _always(CONSTANTS), factor=20),
    "listed": Step(_flat(lambda: listed), _always(MIXED), factor=3),
    "parts": Step(_flat(lambda: parts), _always(MIXED), factor=4),
    "tagged": Step(_tagged, lambda of: (of, LISTS, MIXED), factor=2, stamps=True),
    "keeping": Step(_done(Keeping), _same, needs_order=True),
    "late": Step(_done(Late), _same, needs_order=True),
    "batching": Step(_done(Batching), _always(LISTS), needs_order=True),
    "at time": Step(_done(AtTime), _wrapped),
    "in each window": Step(_done(InEachWindow), _wrapped, factor=2),
    # Windows.
    "fixed": Step(_windowed(lambda: FixedWindows(10)), _same),
    "sliding": Step(_windowed(lambda: SlidingWindows(10, 5)), _same),
    "by content": Step(_windowed(ByContent), _same),
    "keeping windows": Step(_windowed(KeepingWindows), _same, needs_order=True),
}
WITH_RESOURCES: dict[str, Step] = {
    "opened": Step(_flat(lambda: opened), _always(CONSTANTS)),
    "opened inside": Step(_flat(lambda: opened_inside), _always(CONSTANTS)),
    "opened by Beam": Step(_done(OpenAtTime), _always(CONSTANTS)),
    "seen open": Step(_mapped(lambda: seen_open), _wrapped),
}
