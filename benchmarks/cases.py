"""The pipelines that are measured. Each runs unchanged on every runner."""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.examples.wordcount import WordExtractingDoFn
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    CombiningValueStateSpec,
    ReadModifyWriteStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import (
    GlobalWindows,
    Sessions,
    SlidingWindows,
    TimestampedValue,
)

_PADDING = b"x" * 92


class _Expand(beam.DoFn):  # type: ignore[misc]
    """Emits the numbers of a range."""

    def process(self, bounds: tuple[int, int]) -> Iterator[int]:
        return iter(range(*bounds))


class _CountValues(beam.DoFn):  # type: ignore[misc]
    def process(self, group: tuple[bytes, "Iterator[bytes]"]) -> Iterator[int]:
        yield sum(1 for _ in group[1])


class SumByKey(beam.DoFn):  # type: ignore[misc]
    """Sums values in a state, counts them in another, and emits both at the end of event time."""

    SUM = CombiningValueStateSpec("sum", sum)
    COUNT = ReadModifyWriteStateSpec("count", VarIntCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[int, int],
        window: Any = beam.DoFn.WindowParam,
        total: Any = beam.DoFn.StateParam(SUM),
        count: Any = beam.DoFn.StateParam(COUNT),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        total.add(pair[1])
        count.write((count.read() or 0) + 1)
        end.set(window.end)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def give(
        self, total: Any = beam.DoFn.StateParam(SUM), count: Any = beam.DoFn.StateParam(COUNT)
    ) -> Iterator[int]:
        yield total.read() + count.read()


def bounds_of(count: int) -> list[tuple[int, int]]:
    """Return 64 ranges that cover ``count`` numbers."""
    step = -(-count // 64)
    return [(start, min(start + step, count)) for start in range(0, count, step)]


def _numbers(pipeline: beam.Pipeline, count: int, name: str = "") -> beam.PCollection:
    """Return a collection of ``count`` numbers, which 64 elements generate after a Reshuffle."""
    bounds = pipeline | f"Bounds {name}" >> beam.Create(bounds_of(count))
    return bounds | f"Spread {name}" >> beam.Reshuffle() | f"Expand {name}" >> beam.ParDo(_Expand())


def key_and_value(number: int, size: int) -> tuple[bytes, bytes]:
    """Return a pair of 100 bytes in all; four of ``size`` numbers have the same key."""
    key = (number * 2654435761 % (1 << 32)) * (-(-size // 4)) >> 32
    return key.to_bytes(4, "big"), number.to_bytes(8, "big") + _PADDING[4:]


def check(total: int, expected: int) -> None:
    """Raise a ValueError if a pipeline has computed a wrong result."""
    if total != expected:
        raise ValueError(f"{total} instead of {expected}: the run is void")


def word_count(pipeline: beam.Pipeline, size: int, folder: Path) -> None:
    """Count the words of ``size`` MB of text, with the transforms of Beam's example."""
    (
        pipeline
        | beam.io.ReadFromText(str(text_of(size, folder)))
        | beam.ParDo(WordExtractingDoFn())
        | beam.Map(lambda word: (word, 1))
        | beam.CombinePerKey(sum)
        | "Format" >> beam.MapTuple(lambda word, count: f"{word}: {count}")
        | beam.io.WriteToText(str(folder / "counts"))
    )


def group_by_key(pipeline: beam.Pipeline, size: int, folder: Path) -> None:
    """Group ``size`` elements of 100 bytes."""
    (
        _numbers(pipeline, size)
        | beam.Map(key_and_value, size).with_output_types(tuple[bytes, bytes])
        | beam.GroupByKey()
        | beam.ParDo(_CountValues())
        | beam.CombineGlobally(sum)
        | "Check" >> beam.Map(check, size)
    )


def co_group_by_key(pipeline: beam.Pipeline, size: int, folder: Path) -> None:
    """Join two collections of ``size`` elements of 100 bytes each."""
    sides = [
        _numbers(pipeline, size, name)
        | f"Key {name}" >> beam.Map(key_and_value, size).with_output_types(tuple[bytes, bytes])
        for name in ("left", "right")
    ]
    _check_sum(sides | beam.CoGroupByKey() | beam.MapTuple(count_both), 2 * size)


def count_both(key: bytes, sides: tuple[Iterable[bytes], Iterable[bytes]]) -> int:
    """Return the number of values of both sides of a key."""
    return sum(1 for side in sides for _ in side)


def ten_maps(pipeline: beam.Pipeline, size: int, folder: Path) -> None:
    """Process ``size`` numbers by ten fused Maps."""
    numbers = _numbers(pipeline, size)
    for position in range(10):
        numbers |= f"Map{position}" >> beam.Map(lambda number: number + 1)
    numbers | beam.combiners.Count.Globally() | "Check" >> beam.Map(check, size)


def as_dict(pipeline: beam.Pipeline, size: int, folder: Path) -> None:
    """Look each of ``size`` elements up in a side input of 100,000 entries."""
    entries = 100_000
    table = (
        pipeline
        | "Entries" >> beam.Create(range(0, entries, 1000))
        | "Spread entries" >> beam.Reshuffle()
        | "Entry" >> beam.FlatMap(lambda start: ((n, n % 7) for n in range(start, start + 1000)))
    )
    (
        _numbers(pipeline, size)
        | "Look up" >> beam.Map(lambda n, table: table[n % entries], beam.pvalue.AsDict(table))
        | beam.CombineGlobally(sum)
        | "Check" >> beam.Map(check, sum(number % entries % 7 for number in range(size)))
    )


def sliding_sum(pipeline: beam.Pipeline, size: int, folder: Path) -> None:
    """Sum ``size`` values by key and window: 10,000 keys, ten sliding windows for each element."""
    sums = (
        _numbers(pipeline, size)
        | beam.Map(lambda number: TimestampedValue((number % 10_000, 1), number // 10_000))
        | beam.WindowInto(SlidingWindows(size=10, period=1))
        | beam.CombinePerKey(sum)
    )
    _check_sum(sums | beam.Values(), 10 * size)


def sessions(pipeline: beam.Pipeline, size: int, folder: Path) -> None:
    """Group by key and session: ten elements for each key, five for each session."""
    groups = (
        _numbers(pipeline, size)
        | beam.Map(lambda number: TimestampedValue((number // 10, number), number % 10 // 5 * 60))
        | beam.WindowInto(Sessions(30))
        | beam.GroupByKey()
    )
    _check_sum(groups | beam.MapTuple(lambda key, values: len(list(values))), size)


def stateful(pipeline: beam.Pipeline, size: int, folder: Path, *, keys: int) -> None:
    """Sum values in a stateful DoFn, with two states and a timer for each of ``keys`` keys."""
    sums = (
        _numbers(pipeline, size)
        | beam.Map(lambda number: (number % keys, 2)).with_output_types(tuple[int, int])
        | beam.ParDo(SumByKey())
    )
    _check_sum(sums, 3 * size)


def _check_sum(numbers: beam.PCollection, expected: int) -> None:
    (
        numbers
        | "Together" >> beam.WindowInto(GlobalWindows())
        | beam.CombineGlobally(sum)
        | "Check" >> beam.Map(check, expected)
    )


class Steps(RestrictionProvider):  # type: ignore[misc]
    """The restriction provider of elements that are numbers of steps."""

    def initial_restriction(self, element: int) -> OffsetRange:
        return OffsetRange(0, element)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: int, restriction: OffsetRange) -> int:
        return int(restriction.size())


STEPS = beam.DoFn.RestrictionParam(Steps())


class _DeferEachStep(beam.DoFn):  # type: ignore[misc]
    def process(self, element: int, tracker: Any = STEPS) -> Iterator[int]:
        position = tracker.current_restriction().start
        if tracker.try_claim(position):
            yield 1
            tracker.defer_remainder()


def residuals(pipeline: beam.Pipeline, size: int, folder: Path) -> None:
    """Process ``size`` restrictions that defer their residuals 20 times, without a delay."""
    (
        pipeline
        | beam.Create([21] * size)
        | beam.ParDo(_DeferEachStep())
        | beam.CombineGlobally(sum)
        | "Check" >> beam.Map(check, 21 * size)
    )


def three_elements(pipeline: beam.Pipeline, size: int, folder: Path) -> None:
    """Group three elements: the fixed cost of a run."""
    (
        pipeline
        | beam.Create([1, 2, 3])
        | beam.Map(lambda number: (None, number))
        | beam.GroupByKey()
        | "Check" >> beam.MapTuple(lambda _, numbers: check(sum(numbers), 6))
    )


def text_of(size_mb: int, folder: Path) -> Path:
    """Return the path of a text file of ``size_mb`` MB: the sources of Beam, repeated."""
    path = folder / f"text-{size_mb}mb.txt"
    if not path.exists():
        sources = sorted(Path(beam.__file__).parent.rglob("*.py"))
        text = b"".join(source.read_bytes() for source in sources)
        with path.open("wb") as file:
            while file.tell() < size_mb << 20:
                file.write(text[: (size_mb << 20) - file.tell()])
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One benchmark.

    Attributes:
        build: Builds the pipeline, for a size and a folder of files.
        size: The default size.
        unit: The unit of sizes.
        goal: The upper limit of this runner's time, as a fraction of the peer's. None: none.
        peer_in_one_process: Whether the peer runs in one process only: with two, it loses
            residuals.
    """

    build: Callable[[beam.Pipeline, int, Path], None]
    size: int
    unit: str
    goal: float | None
    peer_in_one_process: bool = False


CASES = {
    "word_count": Case(build=word_count, size=200, unit="MB of text", goal=0.9),
    "group_by_key": Case(build=group_by_key, size=5_000_000, unit="x 100 B", goal=0.95),
    "co_group_by_key": Case(
        build=co_group_by_key, size=2_000_000, unit="x 100 B on each side", goal=None
    ),
    "ten_maps": Case(build=ten_maps, size=5_000_000, unit="elements", goal=0.65),
    "as_dict": Case(build=as_dict, size=5_000_000, unit="elements", goal=0.6),
    "sliding_sum": Case(build=sliding_sum, size=1_000_000, unit="elements", goal=0.7),
    "sessions": Case(build=sessions, size=1_000_000, unit="elements", goal=0.7),
    "residuals": Case(
        build=residuals,
        size=2_000,
        unit="restrictions, 20 times",
        goal=0.6,
        peer_in_one_process=True,
    ),
    "stateful_1k_keys": Case(
        build=functools.partial(stateful, keys=1_000), size=2_000_000, unit="elements", goal=0.5
    ),
    "stateful_100k_keys": Case(
        build=functools.partial(stateful, keys=100_000), size=2_000_000, unit="elements", goal=0.5
    ),
    "stateful_2m_keys": Case(
        build=functools.partial(stateful, keys=2_000_000),
        size=2_000_000,
        unit="elements",
        goal=None,
    ),
    "three_elements": Case(build=three_elements, size=3, unit="elements", goal=None),
}
