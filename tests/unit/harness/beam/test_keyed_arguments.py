"""What the methods of stateful DoFns are given."""

import contextlib
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    CombiningValueStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import IntervalWindow, SlidingWindows

from beam_spark_runner.core.errors import BundleFailedError


class Asks(beam.DoFn):  # type: ignore[misc]
    """For all that ``process`` may be given."""

    SEEN = CombiningValueStateSpec("seen", sum)
    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def process(
        self,
        pair: Any,
        given: str,
        key: Any = beam.DoFn.KeyParam,
        window: Any = beam.DoFn.WindowParam,
        time: Any = beam.DoFn.TimestampParam,
        whole: Any = beam.DoFn.WindowedValueParam,
        pane: Any = beam.DoFn.PaneInfoParam,
        seen: Any = beam.DoFn.StateParam(SEEN),
        due: Any = beam.DoFn.TimerParam(DUE),
        default: str = "default",
    ) -> Iterator[Any]:
        assert (whole.value, whole.windows, whole.timestamp) == (pair, (window,), time)
        assert whole.pane_info == pane
        seen.add(1)
        due.set(window.end, dynamic_timer_tag=str(pair[1]))
        yield pair, given, key, float(window.start), float(time), seen.read(), default

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def fire(self, seen: Any = beam.DoFn.StateParam(SEEN)) -> Iterator[int]:
        yield seen.read()


ENTERED = beam.DoFn.BundleContextParam(lambda: contextlib.nullcontext("entered"))


class AsksForMore(Asks):
    """For what only Beam's invoker knows, too."""

    def process(
        self,
        pair: Any,
        given: str,
        key: Any = beam.DoFn.KeyParam,
        window: Any = beam.DoFn.WindowParam,
        time: Any = beam.DoFn.TimestampParam,
        whole: Any = beam.DoFn.WindowedValueParam,
        pane: Any = beam.DoFn.PaneInfoParam,
        seen: Any = beam.DoFn.StateParam(Asks.SEEN),
        due: Any = beam.DoFn.TimerParam(Asks.DUE),
        entered: Any = ENTERED,
    ) -> Iterator[Any]:
        assert entered == "entered"
        yield from super().process(pair, given, key, window, time, whole, pane, seen, due)


@pytest.mark.parametrize("do_fn", [Asks, AsksForMore])
def test_what_process_is_given(running: Any, do_fn: Any) -> None:
    stage = running(do_fn(), SlidingWindows(10, 5), "given")
    assert (stage.operation._make_call is None) == (do_fn is AsksForMore)
    early, late = IntervalWindow(0, 10), IntervalWindow(5, 15)
    stage.push(1, [7], (early,), time=2)
    stage.push(1, [8, 9], (early, late), time=6)
    stage.bundle.advance_key()
    stage.key(2, [7], (late,), time=11)
    stage.bundle.finish()
    rest = "default"
    assert stage.out == [
        ((1, 7), "given", 1, 0.0, 2.0, 1, rest),
        ((1, 8), "given", 1, 0.0, 6.0, 2, rest),
        ((1, 8), "given", 1, 5.0, 6.0, 1, rest),
        ((1, 9), "given", 1, 0.0, 6.0, 3, rest),
        ((1, 9), "given", 1, 5.0, 6.0, 2, rest),
        *[3, 3, 3, 2, 2],
        ((2, 7), "given", 2, 5.0, 11.0, 1, rest),
        1,
    ]


class Text(beam.DoFn):  # type: ignore[misc]
    SEEN = BagStateSpec("seen", VarIntCoder())

    def process(self, pair: Any, seen: Any = beam.DoFn.StateParam(SEEN)) -> Any:
        return "text"


def test_text_is_no_result(running: Any) -> None:
    stage = running(Text())
    with pytest.raises(BundleFailedError, match="keyed: TypeError: Returning a str"):
        stage.push(1, [1])
    stage.bundle.abort()
