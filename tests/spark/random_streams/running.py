"""Runs random pipelines that stream, and brings back what they give."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.utils.windowed_value import PaneInfoTiming

from tests.harvest import Harvest, Kept, harvest_on
from tests.spark.asking import Asking
from tests.spark.main_module import classes_of_main
from tests.spark.random_streams.recipes import Pack, Recipe
from tests.spark.random_streams.scripts import SIDE, pair_of, stream_of
from tests.spark.random_streams.stateful import PAIR, Numbers
from tests.spark.random_streams.steps import GROUPINGS, transform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Given(NamedTuple):
    """An element that a step gave.

    Attributes:
        at: milliseconds of event time.
        pane: timing and index; empty where the element is no pane of a grouping.
    """

    key: str
    numbers: Numbers
    at: int
    window: str
    pane: tuple[str, int] | tuple[()]


Outputs = dict[str, Counter[Given]]
"""What each shown step gave, by the number of its pipeline and its place."""


Dropped = Counter[str]
"""How many elements each step has dropped since they came too late, by the same labels."""


def label_of(number: int, place: int) -> str:
    return f"{number}.{place}"


def outputs_of(runner: Any, pack: Pack, *flags: str) -> Outputs:
    """Run all pipelines of a pack in one, on any runner."""
    return _outputs(_harvest(runner, pack, *flags), pack)


def run_pack(runner: Any, pack: Pack, *flags: str) -> tuple[Outputs, Dropped]:
    """The same on a runner of ours; also how many elements it has counted as dropped."""
    found = _harvest(runner, pack, *flags)
    dropped: Dropped = Counter()
    late = MetricsFilter().with_name("dropped_due_to_lateness")
    for counter in found.result.metrics().query(late)["counters"]:
        dropped[counter.key.step.split(" ")[0]] += counter.committed
    return _outputs(found, pack), dropped


def asking_for(spark: "SparkSession", pack: Pack) -> Asking:
    """Return a runner which knows that steps "stable" and "in order" are what they are called."""
    named: dict[str, list[str]] = {"stable": [], "in order": []}
    for number, recipe in pack.recipes.items():
        for place, step in enumerate(recipe.steps):
            if step.kind in named:
                named[step.kind].append(_name_of(label_of(number, place), step.kind))
    return Asking(spark, stable=named["stable"], in_order=named["in order"])


def _name_of(label: str, kind: str) -> str:
    return f"{label} {kind}"


def _outputs(found: Harvest, pack: Pack) -> Outputs:
    return {
        label: Counter(given_of(each, is_pane=_is_pane(pack, label)) for each in kept)
        for label, kept in found.kept.items()
    }


def _harvest(runner: Any, pack: Pack, *flags: str) -> Harvest:

    def build(p: beam.Pipeline) -> dict[str, Any]:
        played = p | stream_of(pack.script, pack.tags)
        for output in played.values():
            output.element_type = int  # the SDK does not look at the coder
        pairs = {
            tag: played[tag] | tag >> beam.Map(pair_of).with_output_types(PAIR) for tag in pack.tags
        }
        shown = {}
        for number, recipe in pack.recipes.items():
            made = _sources(recipe, number, pairs)
            for place, step in enumerate(recipe.steps):
                label = label_of(number, place)
                side = pairs.get(SIDE)
                made = made | _name_of(label, step.kind) >> transform(step.kind, step.args, side)
                if step.kind != "window":
                    shown[label] = made
        return shown

    flags = ("--allow_unsafe_triggers", *flags)
    with classes_of_main():
        return harvest_on(runner, build, *flags)


def _sources(recipe: Recipe, number: int, pairs: dict[str, Any]) -> Any:
    if len(recipe.sources) == 1:
        return pairs[recipe.sources[0]]
    return tuple(pairs[tag] for tag in recipe.sources) | f"{number} flat" >> beam.Flatten()


def _is_pane(pack: Pack, label: str) -> bool:
    number, place = map(int, label.split("."))
    return pack.recipes[number].steps[place].kind in GROUPINGS


def given_of(kept: Kept, *, is_pane: bool) -> Given:
    key, numbers = kept.value
    timing = PaneInfoTiming.to_string(kept.pane.timing)
    pane: tuple[str, int] | tuple[()] = (timing, kept.pane.index) if is_pane else ()
    # Beam's coders keep milliseconds.
    return Given(key, tuple(numbers), kept.timestamp.micros // 1000, str(kept.window), pane)


def shown(elements: Counter[Given], most: int = 12) -> Sequence[str]:
    """Return elements as lines."""
    some = sorted(map(str, elements.elements()))
    return [f"{len(some)} elements", *some[:most]]
