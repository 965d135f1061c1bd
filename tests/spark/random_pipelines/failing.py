"""Pipelines with one step that raises: both runners must say what it raised, and where."""

import random
import re
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.coders import Coder
from apache_beam.options.pipeline_options import PipelineOptions
from hypothesis import strategies as st

from tests.spark.random_pipelines.recipes import chances
from tests.spark.restrictions import RESTRICTION

COUNT = 200
_ROWS = range(150)  # what is not among them, is not found
_STEP, _AFTER = "the step that raises", "the step after it"
_EXCHANGE = "Reshuffle"  # between the two: a reader decodes its rows


def _find_by_next(n: int) -> int:
    """Raise StopIteration where there is no such row, as many functions do by mistake."""
    return next(row for row in _ROWS if row == n)


def _find_by_key(n: int) -> int:
    return {row: row for row in _ROWS}[n]


class _ReadingBack(Coder):  # type: ignore[misc]
    """Finds each number among the rows, when it encodes or when it decodes."""

    find: Callable[[int], int] = staticmethod(_find_by_next)
    finds_to_encode = True

    def encode(self, value: Any) -> bytes:
        return str(self.find(value) if self.finds_to_encode else int(value)).encode()

    def decode(self, encoded: bytes) -> Any:
        n = int(encoded)
        return Number(n if self.finds_to_encode else self.find(n))

    def is_deterministic(self) -> bool:
        return True


class _ReadingBackLater(_ReadingBack):
    finds_to_encode = False

    def decode(self, encoded: bytes) -> Any:
        return LateNumber(self.find(int(encoded)))


class Number(int):
    """Has a coder that raises when it encodes."""


class LateNumber(int):
    """Has a coder that raises when it decodes."""


beam.coders.registry.register_coder(Number, _ReadingBack)
beam.coders.registry.register_coder(LateNumber, _ReadingBackLater)

Find = Callable[[int], int]


class _Finding(beam.DoFn):  # type: ignore[misc]
    def __init__(self, find: Find) -> None:
        self._find = find

    def process(self, n: int) -> list[int]:
        return [self._find(n)]


class _FindingAsAsked(_Finding):
    def process(self, n: int) -> Iterator[int]:  # type: ignore[override]
        yield self._find(n)


class _FindingAtTheEnd(beam.DoFn):  # type: ignore[misc]
    def __init__(self, find: Find) -> None:
        self._find = find

    def start_bundle(self) -> None:
        self._kept: list[int] = []

    def process(self, n: int) -> None:
        self._kept.append(n)

    def finish_bundle(self) -> None:
        for n in self._kept:
            self._find(n)


class _FindingSum(beam.CombineFn):  # type: ignore[misc]
    def __init__(self, find: Find) -> None:
        self._find = find

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, total: int, n: int) -> int:
        return total + self._find(n)

    def merge_accumulators(self, totals: Any) -> int:
        return sum(totals)

    def extract_output(self, total: int) -> int:
        return total


STEPS: dict[str, Callable[[Find], Any]] = {
    "Map": lambda find: beam.Map(find),
    "MapTuple": lambda find: beam.MapTuple(lambda key, n: find(n)),
    "Filter": lambda find: beam.Filter(lambda n: find(n) >= 0),
    "FlatMap": lambda find: beam.FlatMap(lambda n: [find(n)]),
    "ParDo": lambda find: beam.ParDo(_Finding(find)),
    "ParDo that yields": lambda find: beam.ParDo(_FindingAsAsked(find)),
    "finish_bundle": lambda find: beam.ParDo(_FindingAtTheEnd(find)),
    "CombineGlobally": lambda find: beam.CombineGlobally(_FindingSum(find)),
    "coder that encodes": lambda _: beam.Map(Number).with_output_types(Number),
    "coder that decodes": lambda _: beam.Map(LateNumber).with_output_types(LateNumber),
}
"""What raises; coders always StopIteration."""
FINDING: dict[str, Find] = {"StopIteration": _find_by_next, "KeyError": _find_by_key}


@dataclass(frozen=True)
class Failing:
    """A pipeline that fails.

    Attributes:
        where: one of ``STEPS``, or "restriction".
        error: one of ``FINDING``.
    """

    where: str
    error: str = "StopIteration"


class _Raising(beam.DoFn):  # type: ignore[misc]
    """Works on one element for longer than a round, so that it leaves residuals."""

    def process(self, element: tuple[str, int], tracker: Any = RESTRICTION) -> Iterator[Any]:
        if element[0] == "raises":
            raise LookupError("no such row")
        position = tracker.current_restriction().start
        while tracker.try_claim(position):
            time.sleep(0.05)
            yield element[0], position
            position += 1


FLAGS: dict[str, tuple[str, ...]] = {"restriction": ("--sdf_round_budget=0.1",)}
CASES = [
    *(Failing(where) for where in STEPS),
    *(Failing(where, "KeyError") for where in STEPS if not where.startswith("coder")),
    Failing("restriction", "LookupError"),
]
_ALWAYS = [
    Failing("Map"),
    Failing("restriction", "LookupError"),
    Failing("Filter"),
    Failing("coder that decodes"),
    Failing("MapTuple"),
]


def _build(p: beam.Pipeline, failing: Failing) -> None:
    if failing.where == "restriction":
        elements = [("takes long", 20), ("raises", 20)]
        restricted = p | beam.Create(elements) | _STEP >> beam.ParDo(_Raising())
        restricted | beam.GroupByKey() | beam.MapTuple(lambda key, some: (key, len(list(some))))
        return
    numbers = p | beam.Create(range(COUNT)) | "numbers" >> beam.Map(lambda n: n)
    if failing.where == "MapTuple":
        numbers = numbers | "with keys" >> beam.Map(lambda n: (n % 3, n))
    step = STEPS[failing.where](FINDING[failing.error])
    found = numbers | _STEP >> step
    if failing.where.startswith("coder"):
        found |= beam.Reshuffle()
    found | _AFTER >> beam.Map(str) | beam.combiners.Count.PerElement()


def failures(count: int) -> st.SearchStrategy[list[Failing]]:
    """Draw pipelines that fail: each place once before any comes again, the first of them always.

    Those are the functions that loops in C call, where StopIteration is the end of the loop.
    """

    def drawn(chance: random.Random) -> list[Failing]:
        dealt: list[Failing] = list(_ALWAYS)
        while len(dealt) < count:
            dealt += chance.sample(CASES, len(CASES))
        return dealt[:count]

    return chances().map(drawn)


@dataclass(frozen=True)
class Failure:
    """What a runner says: the exception that the user's code raised, and the step, if it does."""

    raised: str
    step: str | None


def failure_of(runner: Any, failing: Failing, *flags: str) -> Failure:
    """Run a pipeline that must fail, and return what the error says.

    Raises:
        AssertionError: it does not fail, or not with what the user's code raised.
    """
    options = PipelineOptions([*flags, *FLAGS.get(failing.where, ())])
    pipeline = beam.Pipeline(runner=runner, options=options)
    _build(pipeline, failing)
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        steps = re.findall(r"\[while running '(.*?)'\]", str(error))
        raised = re.findall(r"(?:StopIteration|KeyError|LookupError)\b", text)
        assert raised, f"{failing} fails with what user code has not raised:\n{text}"
        return Failure(raised[-1], steps[-1].partition("/")[0] if steps else None)
    raise AssertionError(f"{failing} does not fail")


def check_same_failure(ours: Failure, theirs: Failure, failing: Failing) -> None:
    """Fail where we say something else than Beam's runner, or name no step.

    Beam's runner names none where restrictions and coders raise, or whichever step it has fused
    to the one that made the element.
    """
    assert ours.raised == theirs.raised == failing.error, f"{failing}: {ours}, not {theirs}"
    if failing.where in STEPS and not failing.where.startswith("coder"):
        assert ours.step == theirs.step == _STEP, f"{failing}: {ours}, not {theirs}"
    elif failing.where == "coder that decodes":
        assert ours.step == _EXCHANGE, f"{failing}: {ours}"
    else:
        assert ours.step == _STEP, f"{failing}: {ours}"
