"""What a windowing strategy says to whoever groups values."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from apache_beam.transforms.core import Windowing
from apache_beam.transforms.trigger import AccumulationMode
from apache_beam.transforms.window import WindowFn


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """The strategy of a grouping.

    Beam's own ``Windowing`` is not enough: its triggers know less than the model's, and it knows
    neither that windows are merged already nor that a pane on time may be left out.

    Attributes:
        window_fn: merges windows.
        merges: whether it does so here. In Java, the windows of a GroupByKey's output are merged
            already, and stay as they are in the next one.
        trigger: Trigger proto.
        has_empty_panes: if there is nothing new at the end of a window, the pane on time is empty.
        accumulates: each pane has the values of the panes before.
        lateness_us: how long after its end a window takes values.
        timestamp_combiner: value of ``apache_beam.transforms.window.TimestampCombiner``.

    Source: proto WindowingStrategy.
    """

    window_fn: WindowFn
    merges: bool
    trigger: Any
    has_empty_panes: bool
    accumulates: bool
    lateness_us: int
    timestamp_combiner: int


def strategy_of(windowing: Windowing) -> Strategy:
    """Return the strategy of Beam's own object in Python."""
    trigger = windowing.triggerfn.to_runner_api(None)
    return Strategy(
        window_fn=windowing.windowfn,
        merges=windowing.windowfn.is_merging(),
        trigger=trigger,
        has_empty_panes=waits_for_the_end(trigger),
        accumulates=windowing.accumulation_mode == AccumulationMode.ACCUMULATING,
        lateness_us=windowing.allowed_lateness.micros,
        timestamp_combiner=windowing.timestamp_combiner,
    )


def waits_for_the_end(trigger: Any) -> bool:
    """Whether a trigger fires at the end of a window, besides other times.

    Args:
        trigger: Trigger proto.

    Source: ``TriggerFn.has_ontime_pane`` of Beam's Python.
    """
    kind = trigger.WhichOneof("trigger")
    if kind in (None, "default", "after_end_of_window"):
        return True
    return any(map(waits_for_the_end, parts_of(trigger)))


def parts_of(trigger: Any) -> list[Any]:
    """Return the triggers of which one is made: all Trigger protos."""
    parts: list[Any] = []
    for _, part in getattr(trigger, str(trigger.WhichOneof("trigger"))).ListFields():
        if isinstance(part, type(trigger)):
            parts.append(part)
        elif isinstance(part, Iterable):
            parts.extend(each for each in part if isinstance(each, type(trigger)))
    return parts
