"""Maps windows of a main input to those of a side input, by window mapping fns in Python."""

from collections.abc import Callable
from typing import Any

from apache_beam.internal import pickler
from apache_beam.transforms.sideinputs import default_window_mapping_fn

from beam_spark_runner.harness.failures import charge
from beam_spark_runner.portable.window_mapping import SideWindow
from beam_spark_runner.portable.windowing import decode_window_fn


def side_window_of(
    coded_windowing: bytes, pickled: bytes = b"", step: str = ""
) -> Callable[[Any], SideWindow]:
    """Return the mapping to windows of a side input.

    Args:
        coded_windowing: The windowing of the side input, see ``graph.model.Windowing.coded``.
        pickled: The pickled window mapping fn; empty: the default one of the window fn.
        step: The full name of the step to which errors of the function are assigned.

    Source: ``WindowFn.getDefaultWindowMappingFn`` in Java.
    """
    window_fn = decode_window_fn(coded_windowing)
    encode = window_fn.get_window_coder().encode
    mapping: Callable[[Any], Any] = (
        pickler.loads(pickled) if pickled else default_window_mapping_fn(window_fn)
    )

    def map_window(window: Any) -> SideWindow:
        try:
            side = mapping(window)
        except Exception as error:
            charge(error, step)
            raise
        return SideWindow(side.max_timestamp().micros, encode(side))

    return map_window
