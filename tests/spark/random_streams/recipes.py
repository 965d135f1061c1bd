"""Draws random pipelines that stream."""

import random
from dataclasses import dataclass
from typing import Any

from tests.spark.random_streams.model.triggers import continued
from tests.spark.random_streams.scripts import MAIN, SIDE, Script, draw_script
from tests.spark.random_streams.stateful import STATEFUL
from tests.spark.random_streams.steps import GROUPINGS, HELD
from tests.spark.random_streams.windowings import (
    DEFAULT,
    Trigger,
    Windowing,
    draw_plain_windowing,
    draw_windowing,
)

_EVENTS = 14


@dataclass(frozen=True)
class Step:
    """One step; see ``steps.transform``."""

    kind: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """A pipeline: steps one after the other.

    Attributes:
        sources: the outputs of the TestStream that are flattened into its first collection.
        steps: the first one is a "window".
    """

    sources: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def windowings(self) -> list[Windowing]:
        """Of its main path."""
        return [step.args[0] for step in self.steps if step.kind == "window"]

    @property
    def kinds(self) -> set[str]:
        """Of its steps."""
        return {step.kind for step in self.steps}

    @property
    def groupings(self) -> list[tuple[Windowing, Trigger]]:
        """Of each grouping the windowing of its input, and the trigger, which may continue it."""
        found: list[tuple[Windowing, Trigger]] = []
        windowing, trigger = Windowing(("global",)), DEFAULT
        for step in self.steps:
            if step.kind == "window":
                windowing = step.args[0]
                trigger = windowing.trigger
            elif step.kind in GROUPINGS:
                found.append((windowing, trigger))
                trigger = continued(trigger)
        return found


@dataclass(frozen=True)
class Pack:
    """Pipelines that run together, over one TestStream, which has these outputs."""

    script: Script
    recipes: dict[int, Recipe]
    tags: tuple[str, ...] = (MAIN, SIDE)


def draw_pack(seed: int, size: int) -> Pack:
    """Draw pipelines, the same for the same seed.

    Every other pack has its elements one by one, so that no runner can divide them otherwise; and
    two of four have late ones. In the others half of the pipelines are plain, so that Beam's
    runners can be right about them.
    """
    chance = random.Random(seed)
    one_by_one, may_be_late = seed % 2 == 0, seed % 4 in (1, 2)
    events = _EVENTS + 6 * one_by_one
    script = draw_script(chance, events, one_by_one=one_by_one, may_be_late=may_be_late)
    recipes = {
        number: _draw(chance, is_plain=not may_be_late and chance.random() < 0.5)
        for number in range(size)
    }
    return Pack(script, recipes)


def _draw(chance: random.Random, *, is_plain: bool) -> Recipe:
    draw = draw_plain_windowing if is_plain else draw_windowing
    sources = (MAIN, SIDE) if chance.random() < 0.2 else (MAIN,)
    steps = [Step("window", (draw(chance),))]
    kinds = [_draw_kind(chance, place) for place in range(chance.choice([1, 1, 2, 3]))]
    if chance.random() < _HELD_BEYOND:
        kinds = ["beyond", chance.choice(HELD), chance.choice(GROUPINGS)]
    for place, kind in enumerate(kinds):
        if is_plain and kind in _NOT_PLAIN:
            kind = "group"
        # What is after the end of one window may have no window by another WindowFn.
        is_beyond = any(step.kind == "beyond" for step in steps)
        if place and kind in GROUPINGS and not is_beyond and chance.random() < 0.3:
            steps.append(Step("window", (draw(chance),)))
        steps.append(Step(kind, (_draw_side(chance),) if kind == "look up" else ()))
    return Recipe(sources, tuple(steps))


_HELD_BEYOND = 0.15
"""How many pipelines keep elements that are after the end of their windows, before a grouping."""
_NOT_PLAIN = (*HELD, "on the clock", "polling", "in rounds", "beyond")


def _draw_kind(chance: random.Random, place: int) -> str:
    if place == 0 and chance.random() < 0.4:
        return chance.choice(GROUPINGS)
    kinds = (*GROUPINGS, *STATEFUL, *HELD, "in boxes", "beyond", "beyond", "reshuffle", "rekey")
    return chance.choice(kinds)


def _draw_side(chance: random.Random) -> Windowing:
    """Draw the windowing of a side input, whose windows do not merge."""
    if chance.random() < 0.6:
        return Windowing(
            chance.choice([("global",), ("fixed", 10, 0), ("sliding", 12, 6)]), DEFAULT
        )
    window_fn = chance.choice([("global",), ("fixed", 10, 0)])
    trigger = ("repeat", chance.choice([("count", 1), ("count", 2)]))
    return Windowing(window_fn, trigger, accumulates=chance.random() < 0.5)
