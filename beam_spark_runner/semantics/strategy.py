"""The windowing strategy by which values are grouped."""

from dataclasses import dataclass
from typing import Any

from apache_beam.transforms.window import WindowFn


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """The windowing strategy of a grouping.

    Beam's Python class ``Windowing`` is not enough: it has fewer triggers than the model, and
    neither windows that are merged already nor on-time panes that may be left out.

    Attributes:
        window_fn: The WindowFn, which may merge windows.
        merges: Whether it merges windows here. In Java, the windows of a GroupByKey's output are
            merged already, and do not merge in the next GroupByKey.
        trigger: The trigger, as a Trigger proto.
        has_empty_panes: Whether there is an empty on-time pane if no values are new at the end
            of a window.
        has_last_panes: Whether there is an empty pane if no values are new when a window is closed:
            when it expires, or by its trigger.
        accumulates: Whether each pane has the values of the previous panes, too.
        lateness_us: The allowed lateness.
        timestamp_combiner: A value of ``apache_beam.transforms.window.TimestampCombiner``.

    Source: proto WindowingStrategy.
    """

    window_fn: WindowFn
    merges: bool
    trigger: Any
    has_empty_panes: bool
    has_last_panes: bool
    accumulates: bool
    lateness_us: int
    timestamp_combiner: int
