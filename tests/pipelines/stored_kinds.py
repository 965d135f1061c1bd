"""A streaming pipeline that stores data of every kind, and checkpoints of its first epochs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.utils.timestamp import Duration

from beam_spark_runner.transforms import DeclarativeKeyedProcess
from tests.harvest import Harvest, harvest_on
from tests.pipelines.every_state import Declared, EveryState
from tests.spark.asking import Asking
from tests.spark.random_streams.scripts import (
    MAIN,
    SIDE,
    Add,
    Clock,
    Script,
    Timed,
    Watermark,
    pair_of,
    stream_of,
)
from tests.spark.random_streams.stateful import PAIR, STATEFUL, Numbers
from tests.spark.random_streams.steps import transform
from tests.spark.random_streams.windowings import Windowing
from tests.spark.restarting import StoppedError, stopping_after
from tests.spark.restrictions import RESTRICTION

EPOCHS = 13
"""How many epochs are committed before the pipeline is stopped; the elements 1 to 12 came then."""
FLAGS = ("--parallelism=2", "--max_parallelism=8", "--allow_unsafe_triggers")

_BEFORE: Script = (
    Add(MAIN, (Timed("a", 1, 0), Timed("b", 2, 3), Timed("c", 3, 5))),
    Add(SIDE, (Timed("a", 4, 2),)),
    Watermark(MAIN, 4),
    Add(MAIN, (Timed("a", 5, 9), Timed("a", 6, 6), Timed("b", 7, 14))),
    Clock(2),
    Add(MAIN, (Timed("c", 8, 4), Timed("b", 9, 21))),
    Watermark(SIDE, 5),
    Add(SIDE, (Timed("b", 10, 11),)),
    Add(MAIN, (Timed("a", 11, 17), Timed("c", 12, 8))),
)
_AFTER: Script = (
    Add(MAIN, (Timed("a", 13, 12), Timed("b", 14, 23))),
    Watermark(MAIN, 13),
    Clock(10),
    Watermark(SIDE, 30),
    Add(MAIN, (Timed("c", 15, 31), Timed("a", 16, 11))),
    Clock(20),
    Watermark(MAIN, 40),
)
_WINDOWINGS = {
    "fixed": Windowing(("fixed", 10, 0), lateness=12),
    "sessions": Windowing(("sessions", 8), ("watermark", ("count", 2), ("count", 1)), lateness=50),
    "sliding": Windowing(("sliding", 12, 6), ("repeat", ("count", 2)), accumulates=True),
    "delayed": Windowing(("global",), ("repeat", ("delay", 7))),
}
_GROUPINGS = ("group", "concat")
_STEPS = {
    "fixed": (*STATEFUL, *_GROUPINGS, "concat all", "look up", "in order", "stable", "reshuffle"),
    "sessions": ("at the end", *_GROUPINGS),
    "sliding": _GROUPINGS,
    "delayed": _GROUPINGS,
}
"""Kinds of steps, by their windows; see ``tests.spark.random_streams.steps``."""


EVERY_STATE, DECLARED = "every state", "declared"
ADDED = frozenset((EVERY_STATE, DECLARED))
"""Steps that the checkpoint ``before_one_engine`` does not have."""


class Counts(beam.DoFn):  # type: ignore[misc]
    """Counts for each element, one number in each second, so that it leaves residuals."""

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self, element: tuple[str, int], tracker: Any = RESTRICTION
    ) -> Iterator[tuple[str, Numbers]]:
        number = tracker.current_restriction().start
        if tracker.try_claim(number):
            yield element[0], (number,)
            tracker.defer_remainder(Duration(1))


def run(folder: Path, *flags: str) -> Harvest:
    """Run the pipeline to its end, from the checkpoint in a folder if there is one."""
    runner = Asking(None, stable=["stable in fixed"], in_order=["in order in fixed"])
    return harvest_on(runner, _build, f"--checkpoint_dir={folder}", *FLAGS, *flags)


def stop(folder: Path) -> None:
    """Run the first epochs, and leave a checkpoint in a folder."""
    with stopping_after(EPOCHS), pytest.raises(StoppedError):
        run(folder)


def _build(p: beam.Pipeline) -> dict[str, Any]:
    played = p | stream_of((*_BEFORE, *_AFTER), (MAIN, SIDE))
    for output in played.values():
        output.element_type = int  # the SDK does not look at the coder
    main, side = (
        played[tag] | tag >> beam.Map(pair_of).with_output_types(PAIR) for tag in (MAIN, SIDE)
    )
    shown = {}
    for name, windowing in _WINDOWINGS.items():
        windowed = main | f"{name} windows" >> windowing.transform()
        for kind in _STEPS[name]:
            label = f"{kind} in {name}"
            shown[label] = windowed | label >> transform(kind, (_WINDOWINGS["fixed"],), side)
    far = side | beam.MapTuple(lambda key, numbers: (key, 2 * numbers[0]))
    far.element_type = tuple[str, int]
    shown["counts"] = far | beam.ParDo(Counts()).with_output_types(PAIR)
    fixed = main | "every state windows" >> _WINDOWINGS["fixed"].transform()
    shown[EVERY_STATE] = fixed | EVERY_STATE >> beam.ParDo(EveryState()).with_output_types(PAIR)
    numbers = main | "numbers" >> beam.MapTuple(lambda key, numbers: (key, numbers[0]))
    typed = numbers | "typed" >> beam.Map(lambda pair: pair).with_output_types(tuple[str, int])
    shown[DECLARED] = typed | DECLARED >> DeclarativeKeyedProcess(Declared())
    return shown
