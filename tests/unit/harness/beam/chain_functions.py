"""The user functions of random chains, which do what Beam forbids; see ``chains``."""

import contextlib
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import Coder
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import (
    GlobalWindow,
    IntervalWindow,
    NonMergingWindowFn,
    TimestampedValue,
    WindowFn,
)
from apache_beam.utils.windowed_value import WindowedValue

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


def part_of(value: Any, parts: int) -> int:
    return second_of(value) % parts


def by_tag(value: Any) -> Iterator[Any]:
    yield value
    yield TaggedOutput("odd" if second_of(value) % 2 else "even", value)


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


def keeping_results() -> Callable[[Any], list[Any]]:
    kept: list[Any] = []

    def keep(value: Any) -> list[Any]:
        for each in kept[-2:]:
            change(each)
        kept.append([value])
        return kept[-1]  # type: ignore[no-any-return]

    return keep


def reusing() -> Callable[[Any], list[Any]]:
    buffer: list[Any] = []

    def put(value: Any) -> list[Any]:
        buffer[:] = [value]
        return buffer

    return put


def keeping_values() -> Callable[[Any], bool]:
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


class ByBeam(beam.DoFn):  # type: ignore[misc]
    """Run by Beam's own operation in either case."""

    def process(self, value: Any, end: Any = beam.DoFn.BundleFinalizerParam) -> Iterator[Any]:
        yield value, 0
        change(value)


class AtTime(beam.DoFn):  # type: ignore[misc]
    """Asks for the timestamp."""

    def process(self, value: Any, at: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        yield value, at.micros


class WithOrigin(beam.DoFn):  # type: ignore[misc]
    """Asks for all that comes with an element, between other arguments."""

    def process(
        self,
        first: Any,
        second: Any = "second",
        pane: Any = beam.DoFn.PaneInfoParam,
        value: Any = beam.DoFn.ElementParam,
        at: Any = beam.DoFn.TimestampParam,
    ) -> Iterator[Any]:
        yield value, f"{first} {second} {pane} {at}"
        change(value)


class InEachWindow(beam.DoFn):  # type: ignore[misc]
    """Called once for each window."""

    def process(self, value: Any, window: Any = beam.DoFn.WindowParam) -> Iterator[Any]:
        yield value, str(window)
        change(value)


class OpenAtTime(beam.DoFn):  # type: ignore[misc]
    """Has something that is open until ``process`` continues."""

    def process(self, value: Any, at: Any = beam.DoFn.TimestampParam) -> Iterator[str]:
        yield from opened(value)


class OpenByBeam(beam.DoFn):  # type: ignore[misc]
    """The same, run by Beam's own operation."""

    def process(self, value: Any, end: Any = beam.DoFn.BundleFinalizerParam) -> Iterator[str]:
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
