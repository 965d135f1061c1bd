"""Sized restrictions, and the protos in which an SDK gives them back."""

from collections.abc import Mapping, Sequence
from typing import Any

from apache_beam import coders
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.transforms.window import IntervalWindow
from apache_beam.utils import proto_utils
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue
from google.protobuf import timestamp_pb2

PANE = PaneInfo(True, False, PaneInfoTiming.ON_TIME, 0, 0)
RESTRICTION_AND_STATE = coders.TupleCoder([coders.VarIntCoder(), coders.VarIntCoder()])
SIZED = coders.TupleCoder(
    [coders.TupleCoder([coders.StrUtf8Coder(), RESTRICTION_AND_STATE]), coders.FloatCoder()]
)
WINDOW_CODER = coders.coders.IntervalWindowCoder()
INPUT_CODER = coders.WindowedValueCoder(SIZED, WINDOW_CODER)


def restriction(
    element: str, position: int = 0, *, windows: Sequence[int] = (0,), timestamp: float = 3.5
) -> WindowedValue:
    """An element with a restriction that begins at ``position``; a window per start, of 10 s."""
    return WindowedValue(
        ((element, (position, 0)), 1.0),
        Timestamp(timestamp),
        tuple(IntervalWindow(start, start + 10) for start in windows),
        PANE,
    )


def residual(
    element: WindowedValue, delay_ms: float | None = None, watermarks: Mapping[str, Any] = {}
) -> beam_fn_api_pb2.DelayedBundleApplication:
    root = beam_fn_api_pb2.DelayedBundleApplication()
    root.application.transform_id = "process"
    root.application.element = INPUT_CODER.get_impl().encode_nested(element)
    if delay_ms is not None:
        root.requested_time_delay.FromMicroseconds(round(delay_ms * 1000))
    for output, seconds in watermarks.items():
        time = proto_utils.from_micros(timestamp_pb2.Timestamp, Timestamp.of(seconds).micros)
        root.application.output_watermarks[output].CopyFrom(time)
    return root


def response(*roots: Any) -> beam_fn_api_pb2.ProcessBundleResponse:
    return beam_fn_api_pb2.ProcessBundleResponse(residual_roots=roots)
