from collections.abc import Callable

import pytest
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import IntervalWindow, Sessions
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.semantics.grouping import Grouping, PaneGrouping, WindowGrouping


@pytest.mark.parametrize("grouping", [WindowGrouping, PaneGrouping])
def test_panes_have_the_timestamps_of_beams_wire(
    grouping: Callable[[Windowing], Grouping],
) -> None:
    values = [WindowedValue(n, n, (IntervalWindow(n, n + 2),)) for n in (1, 2, 4)]
    panes = list(grouping(Windowing(Sessions(2))).panes("key", values))
    assert [(pane.value, pane.timestamp.micros, pane.windows) for pane in panes] == [
        (("key", [1, 2]), 3_999_000, (IntervalWindow(1, 4),)),
        (("key", [4]), 5_999_000, (IntervalWindow(4, 6),)),
    ]
