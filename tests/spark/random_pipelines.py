"""Random pipelines that give the same elements on every runner, whatever their order.

Many are packed into one run: a Spark job costs more than their few elements.
"""

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark, Repeatedly
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindows,
    Sessions,
    SlidingWindows,
    TimestampCombiner,
    TimestampedValue,
)
from hypothesis import strategies as st

WINDOWINGS: dict[str, Callable[[], beam.WindowInto]] = {
    "global": lambda: beam.WindowInto(GlobalWindows()),
    "fixed 3": lambda: beam.WindowInto(FixedWindows(3)),
    "fixed 10 latest": lambda: beam.WindowInto(
        FixedWindows(10), timestamp_combiner=TimestampCombiner.OUTPUT_AT_LATEST
    ),
    "fixed 10 earliest": lambda: beam.WindowInto(
        FixedWindows(10, 1), timestamp_combiner=TimestampCombiner.OUTPUT_AT_EARLIEST
    ),
    "sliding": lambda: beam.WindowInto(SlidingWindows(6, 3)),
    "sessions": lambda: beam.WindowInto(Sessions(4)),
    "early": lambda: beam.WindowInto(
        FixedWindows(20),
        trigger=AfterWatermark(early=AfterCount(2)),
        accumulation_mode=AccumulationMode.DISCARDING,
    ),
    "counting": lambda: beam.WindowInto(
        GlobalWindows(),
        trigger=Repeatedly(AfterCount(3)),
        accumulation_mode=AccumulationMode.ACCUMULATING,
    ),
}
ASIDE = ("global", "fixed 3", "fixed 10 latest", "sliding")
"""Windowings that a side input may have: one pane per window, and windows that do not merge."""


@dataclass(frozen=True)
class Step:
    """One step; ``inputs`` are the numbers of earlier collections."""

    kind: str
    inputs: tuple[int, ...] = ()
    args: tuple[Any, ...] = ()


Recipe = tuple[Step, ...]


def packs(size: int) -> st.SearchStrategy[dict[int, Recipe]]:
    """Draw recipes. Hypothesis draws the seed only: its own draws prefer what is small."""
    return st.randoms(use_true_random=True).map(
        lambda chance: {number: _recipe(chance) for number in range(size)}
    )


def _recipe(chance: random.Random, max_steps: int = 9) -> Recipe:
    """Draw a pipeline. A collection holds numbers or pairs of numbers, in one windowing."""
    steps: list[Step] = []
    known: list[tuple[str, str]] = []  # of each collection: what it holds, its windowing

    def some(holds: str, windowings: Sequence[str] = tuple(WINDOWINGS)) -> list[int]:
        return [n for n, (h, w) in enumerate(known) if h == holds and w in windowings]

    def add(kind: str, holds: str, windowing: str, inputs: Sequence[int] = (), *args: Any) -> None:
        steps.append(Step(kind, tuple(inputs), args))
        known.append((holds, windowing))

    def create() -> None:
        count = chance.choice([0, 1, 5, 12])
        add("create", "numbers", "global", (), *(chance.randint(0, 40) for _ in range(count)))

    create()
    for _ in range(chance.randint(2, max_steps)):
        pairs = some("pairs")
        kinds = [kind for kind, (takes, _) in _KINDS.items() if pairs or takes != "pairs"]
        weights = [3 if "pairs" in _KINDS[kind] or kind == "window" else 1 for kind in kinds]
        (kind,) = chance.choices(kinds, weights)
        takes, gives = _KINDS[kind]
        source = chance.choice(some(takes) if takes else range(len(known)))
        holds, windowing = known[source]
        if kind == "create":
            create()
        elif kind in ("flatten", "cogroup"):
            other = chance.choice(some(holds, [windowing]))
            add(kind, holds, windowing, [source, other])
        elif kind == "window":
            windowing = chance.choice(list(WINDOWINGS))
            add(kind, holds, windowing, [source], windowing)
        elif kind.startswith("with "):
            beside = some("pairs" if kind == "with multimap" else "numbers", ASIDE)
            if beside:
                add(kind, holds, windowing, [source, chance.choice(beside)])
        else:
            add(kind, gives or holds, windowing, [source], chance.randint(1, 5))
    return tuple(steps)


_KINDS: dict[str, tuple[str, str]] = {
    "create": ("", "numbers"),
    "flatten": ("", ""),
    "cogroup": ("pairs", "pairs"),
    "window": ("", ""),
    "with list": ("numbers", "numbers"),
    "with iterable": ("numbers", "numbers"),
    "with singleton": ("numbers", "numbers"),
    "with multimap": ("numbers", "numbers"),  # and pairs
    "reshuffle": ("", ""),
    "map": ("numbers", "numbers"),
    "repeat": ("numbers", "numbers"),
    "filter": ("numbers", "numbers"),
    "odd": ("numbers", "numbers"),
    "distinct": ("numbers", "numbers"),
    "sum all": ("numbers", "numbers"),
    "sum all, fanned out": ("numbers", "numbers"),
    "pair": ("numbers", "pairs"),
    "count each": ("numbers", "pairs"),
    "unpair": ("pairs", "numbers"),
    "group": ("pairs", "pairs"),
    "sum": ("pairs", "pairs"),
    "greatest": ("pairs", "pairs"),
    "fold": ("pairs", "pairs"),
    "sum, fanned out": ("pairs", "pairs"),
}
"""What each kind of step takes and gives; empty: anything, and the same again."""


class Fold(beam.CombineFn):  # type: ignore[misc]
    """A sum whose accumulator is no number, and whose order of merging does not matter."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add_input(self, accumulator: list[int], value: int) -> list[int]:
        return [accumulator[0] + value, accumulator[1] + 1]

    def merge_accumulators(self, accumulators: Any) -> list[int]:
        # Of a pane without elements, there are none.
        return [sum(part) for part in zip([0, 0], *accumulators, strict=True)]

    def extract_output(self, accumulator: list[int]) -> int:
        return accumulator[0] * 3 + accumulator[1]


def _greatest(values: Iterable[int]) -> int:
    return max(values, default=-(10**9))  # of a pane without elements


class SortOut(beam.DoFn):  # type: ignore[misc]
    def process(self, number: int) -> Iterator[Any]:
        yield beam.pvalue.TaggedOutput("odd" if number % 2 else "even", number)


def _apply(p: beam.Pipeline, step: Step, made: list[Any], label: str) -> Any:
    def named(transform: Any, what: str = "") -> Any:
        return f"{label} {step.kind}{what}" >> transform

    kind, args = step.kind, step.args
    sources = [made[number] for number in step.inputs]
    if kind == "create":
        timed = beam.Map(lambda n: TimestampedValue(n, n)).with_output_types(int)
        return p | named(beam.Create(args)) | named(timed, ": time")
    first = sources[0]
    if kind == "flatten":
        return tuple(sources) | named(beam.Flatten())
    if kind == "cogroup":
        both = tuple(sources) | named(beam.CoGroupByKey())
        joined = beam.MapTuple(lambda k, two: (k, sum(two[0]) * 3 - sum(two[1])))
        return both | named(joined.with_output_types(tuple[int, int]), ": join")
    if kind == "window":
        return first | named(WINDOWINGS[args[0]]())
    if kind == "with singleton":
        summed = sources[1] | named(beam.CombineGlobally(sum).without_defaults(), ": sum")
        aside = beam.pvalue.AsSingleton(summed, default_value=-1)
        return first | named(beam.Map(lambda n, side: n + side, aside).with_output_types(int))
    if kind == "with multimap":
        aside = beam.pvalue.AsMultiMap(sources[1])
        use = beam.Map(lambda n, side: n + sum(side[n % 3]), aside)
        return first | named(use.with_output_types(int))
    if kind == "with list":
        use = beam.Map(lambda n, side: n + sum(side) * 7, beam.pvalue.AsList(sources[1]))
        return first | named(use.with_output_types(int))
    if kind == "with iterable":
        use = beam.Map(lambda n, side: n * len(list(side)), beam.pvalue.AsIter(sources[1]))
        return first | named(use.with_output_types(int))
    if kind == "odd":
        return (first | named(beam.ParDo(SortOut()).with_outputs("odd", "even"))).odd
    return first | named(_transform(kind, args))


def _transform(kind: str, args: tuple[Any, ...]) -> Any:
    number = args[0] if args else 0
    pair = tuple[int, int]
    return {
        "reshuffle": beam.Reshuffle,
        "map": lambda: beam.Map(lambda n: (n * number + 1) % 50).with_output_types(int),
        "repeat": lambda: beam.FlatMap(lambda n: [n] * (n % number)).with_output_types(int),
        "filter": lambda: beam.Filter(lambda n: n % (number + 1) != 0),
        "distinct": beam.Distinct,
        "sum all": lambda: beam.CombineGlobally(sum).without_defaults(),
        "sum all, fanned out": lambda: (
            beam.CombineGlobally(Fold()).without_defaults().with_fanout(number)
        ),
        "pair": lambda: beam.Map(lambda n: (n % number, n)).with_output_types(pair),
        "count each": beam.combiners.Count.PerElement,
        "unpair": lambda: beam.MapTuple(lambda k, v: k * 7 + v).with_output_types(int),
        "group": _Grouped,
        "sum": lambda: beam.CombinePerKey(sum),
        "greatest": lambda: beam.CombinePerKey(_greatest),
        "fold": lambda: beam.CombinePerKey(Fold()),
        "sum, fanned out": lambda: beam.CombinePerKey(sum).with_hot_key_fanout(number),
    }[kind]()


class _Grouped(beam.PTransform):  # type: ignore[misc]
    def expand(self, pairs: Any) -> Any:
        def summed_up(key: int, values: Any) -> tuple[int, int]:
            inside = sorted(values)
            return key, sum(n * (place + 1) for place, n in enumerate(inside)) + len(inside)

        return (
            pairs | beam.GroupByKey() | beam.MapTuple(summed_up).with_output_types(tuple[int, int])
        )


class _AsText(beam.DoFn):  # type: ignore[misc]
    """An element with all that Beam keeps beside it."""

    def __init__(self, label: str) -> None:
        self._label = label

    def process(
        self,
        element: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
        pane: Any = beam.DoFn.PaneInfoParam,
    ) -> Iterator[str]:
        millis = int(timestamp.micros / 1000)  # what Beam's coder keeps
        yield f"{self._label}: {element} at {millis} in {window}, pane {pane.index} {pane.timing}"


def elements_of(runner: Any, pack: Mapping[int, Recipe], *flags: str) -> Counter[str]:
    """Run all of a pack in one pipeline.

    Args:
        runner: to run it on.
        pack: recipes by their numbers, which name their steps.
        flags: pipeline options.

    Returns:
        The elements of all collections, as text. They come through a sink of
        Beam's, so that tasks which run twice do not double them.
    """
    with tempfile.TemporaryDirectory() as folder:
        pipeline = beam.Pipeline(runner=runner, options=PipelineOptions(list(flags)))
        lines = []
        for number, recipe in pack.items():
            made: list[Any] = []
            for place, step in enumerate(recipe):
                label = f"{number}.{place}"
                made.append(_apply(pipeline, step, made, label))
                text = made[-1] | f"{label} as text" >> beam.ParDo(_AsText(label))
                lines.append(text | f"{label} to write" >> beam.WindowInto(GlobalWindows()))
        lines | beam.Flatten() | beam.io.WriteToText(f"{folder}/all")
        result = pipeline.run()
        assert result.wait_until_finish() == "DONE"
        return Counter(
            line for file in Path(folder).glob("all*") for line in file.read_text().splitlines()
        )


def by_beams_runner(pack: Mapping[int, Recipe]) -> tuple[Counter[str], dict[int, Recipe]]:
    """Run a pack on Beam's FnApiRunner, as far as that can.

    It gives up on some pipelines: bundles wait for a watermark that never comes.

    Returns:
        The elements, and those of the pack that were run.
    """
    found: Counter[str] = Counter()
    ran: dict[int, Recipe] = {}
    pending = [dict(pack)]
    while pending:
        some = pending.pop()
        try:
            found += elements_of(FnApiRunner(), some)
        except AssertionError as error:
            if "bundles did not execute" not in str(error):
                raise
            half = list(some)[len(some) // 2 :]
            if len(some) > 1:
                pending.append({number: some.pop(number) for number in half})
                pending.append(some)
        else:
            ran |= some
    return found, ran


def check_same(ours: Counter[str], theirs: Counter[str], pack: Mapping[int, Recipe]) -> None:
    """Fail with the first recipe that differs, up to its first collection that does.

    Hypothesis need not shrink a pack: what a collection is made of stands before it.
    """
    wrong = {
        tuple(map(int, line.partition(":")[0].split(".")))
        for line in (ours - theirs) + (theirs - ours)
    }
    if wrong:
        number, place = min(wrong)
        label = f"{number}.{place}:"
        steps = "\n".join(f"  {n}: {step}" for n, step in enumerate(pack[number][: place + 1]))
        raise AssertionError(
            f"{steps}\n"
            f"only here: {[line for line in ours - theirs if line.startswith(label)]}\n"
            f"only there: {[line for line in theirs - ours if line.startswith(label)]}"
        )
