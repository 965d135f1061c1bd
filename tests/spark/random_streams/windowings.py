"""Windowings of random pipelines that stream: drawn as plain data, and made into Beam's.

A trigger is a tuple: its name, and its numbers or the triggers in it.
"""

import random
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.transforms import trigger as beams
from apache_beam.transforms.trigger import AccumulationMode
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindows,
    Sessions,
    SlidingWindows,
    TimestampCombiner,
)

Trigger = tuple[Any, ...]
WindowFn = tuple[Any, ...]

DEFAULT: Trigger = ("default",)


@dataclass(frozen=True)
class Windowing:
    """What WindowInto takes.

    Attributes:
        window_fn: ("global",), ("fixed", size, offset), ("sliding", size, period) or
            ("sessions", gap); seconds.
        trigger: see ``beams_trigger``.
        accumulates: whether a pane has what earlier panes had.
        lateness: allowed, in seconds.
        at: "end", "earliest" or "latest": the timestamp of a pane.
    """

    window_fn: WindowFn
    trigger: Trigger = DEFAULT
    accumulates: bool = False
    lateness: int = 0
    at: str = "end"

    @property
    def merges(self) -> bool:
        """Whether windows may merge."""
        return bool(self.window_fn[0] == "sessions")

    def transform(self) -> beam.WindowInto:
        """Return the transform."""
        modes = AccumulationMode
        return beam.WindowInto(
            beams_window_fn(self.window_fn),
            trigger=beams_trigger(self.trigger),
            accumulation_mode=modes.ACCUMULATING if self.accumulates else modes.DISCARDING,
            allowed_lateness=self.lateness,
            timestamp_combiner={
                "end": TimestampCombiner.OUTPUT_AT_EOW,
                "earliest": TimestampCombiner.OUTPUT_AT_EARLIEST,
                "latest": TimestampCombiner.OUTPUT_AT_LATEST,
            }[self.at],
        )


def beams_window_fn(window_fn: WindowFn) -> Any:
    """Return Beam's."""
    name, *args = window_fn
    if name == "global":
        return GlobalWindows()
    return {"fixed": FixedWindows, "sliding": SlidingWindows, "sessions": Sessions}[name](*args)


def beams_trigger(trigger: Trigger) -> Any:
    """Return Beam's trigger."""
    match trigger:
        case ("default",):
            return beams.DefaultTrigger()
        case ("always",):
            return beams.Always()
        case ("count", count):
            return beams.AfterCount(count)
        case ("delay", seconds):
            return beams.AfterProcessingTime(seconds)
        case ("watermark", early, late):
            return beams.AfterWatermark(
                early=early and beams_trigger(early), late=late and beams_trigger(late)
            )
        case ("repeat", part):
            return beams.Repeatedly(beams_trigger(part))
        case (name, *parts):
            kinds = {
                "any": beams.AfterAny,
                "all": beams.AfterAll,
                "each": beams.AfterEach,
                "or finally": beams.OrFinally,
            }
            return kinds[name](*map(beams_trigger, parts))
    raise ValueError(trigger)


def nodes(trigger: Trigger) -> list[Trigger]:
    """Return a trigger and all that are in it."""
    found = [trigger]
    for part in trigger[1:]:
        if isinstance(part, tuple):
            found += nodes(part)
    return found


def counts(trigger: Trigger) -> bool:
    """Whether it matters to a trigger how elements are divided into bundles."""
    return any(node[0] in ("count", "always") for node in nodes(trigger))


def waits(trigger: Trigger) -> bool:
    """Whether processing time matters to a trigger."""
    return any(node[0] == "delay" for node in nodes(trigger))


def draw_plain_windowing(chance: random.Random) -> Windowing:
    """Draw one whose windows neither merge nor wait for late elements."""
    window_fn: WindowFn = chance.choice([("fixed", 10, 0), ("sliding", 12, 6), ("global",)])
    early = ("count", chance.randint(1, 4))
    trigger: Trigger = chance.choice([DEFAULT, ("watermark", early, None)])
    is_early = trigger != DEFAULT
    at = "end" if is_early else chance.choice(["end", "earliest", "latest"])
    return Windowing(window_fn, trigger, chance.random() < 0.5, 0, at)


def draw_windowing(chance: random.Random) -> Windowing:
    """Draw one: half of them with the default trigger."""
    window_fn: WindowFn = chance.choice(
        [
            ("global",),
            ("fixed", 10, 0),
            ("fixed", chance.randint(4, 20), 3),
            ("sliding", 12, 6),
            ("sliding", 9, 3),
            ("sessions", chance.randint(2, 8)),
            ("sessions", 10),
        ]
    )
    trigger = DEFAULT if chance.random() < 0.3 else _draw_trigger(chance)
    return Windowing(
        window_fn,
        trigger,
        accumulates=chance.random() < 0.5,
        lateness=chance.choice([0, 0, 5, 12, 1000]),
        at=chance.choice(["end", "end", "earliest", "latest"]),
    )


def _draw_trigger(chance: random.Random) -> Trigger:
    if chance.random() < 0.5:
        early = _draw_once(chance) if chance.random() < 0.7 else None
        late = _draw_once(chance) if chance.random() < 0.7 else None
        return ("watermark", early, late)
    if chance.random() < 0.7:
        return ("repeat", _draw_part(chance, 2))
    return _draw_part(chance, 2)


def _draw_once(chance: random.Random) -> Trigger:
    """Draw what may stand in AfterWatermark: Java's OnceTriggers."""
    leaf: list[Trigger] = [("count", chance.randint(1, 4)), ("delay", chance.randint(1, 15))]
    if chance.random() < 0.7:
        return chance.choice(leaf)
    return (chance.choice(["any", "all"]), *leaf)


def _draw_part(chance: random.Random, depth: int) -> Trigger:
    if depth == 0 or chance.random() < 0.4:
        return chance.choice(
            [("count", chance.randint(1, 4)), ("delay", chance.randint(1, 15)), _END, _END]
        )
    name = chance.choice(["any", "all", "each", "or finally", "repeat", "watermark"])
    if name == "repeat":
        return ("or finally", ("repeat", _draw_part(chance, 0)), _draw_part(chance, depth - 1))
    if name == "watermark":
        return ("watermark", _draw_once(chance), _draw_once(chance))
    return (name, _draw_part(chance, depth - 1), _draw_part(chance, depth - 1))


_END: Trigger = ("watermark", None, None)
