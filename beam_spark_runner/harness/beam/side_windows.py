"""Maps windows of a main input to those of a side input."""

from collections.abc import Callable
from typing import Any

from apache_beam.transforms.sideinputs import default_window_mapping_fn

from beam_spark_runner.portable.windowing import decode_windowing


def side_window_of(coded_windowing: bytes) -> Callable[[Any], Any]:
    """Return the mapping to windows of a side input, as SDKs define it where users do not.

    Args:
        coded_windowing: of the side input, as ``graph.model.Windowing.coded``.

    Source: ``WindowFn.getDefaultWindowMappingFn`` in Java.
    """
    mapping: Callable[[Any], Any] = default_window_mapping_fn(
        decode_windowing(coded_windowing).windowfn
    )
    return mapping
