"""What a windowing strategy says to whoever groups values."""

from dataclasses import dataclass
from typing import Any

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
