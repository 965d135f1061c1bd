"""Rows of side inputs in epochs: all values come to one place, where their panes fire together."""

from typing import Any

from apache_beam.coders import BytesCoder, IterableCoder, TupleCoder, WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.spark.program import Edge
from beam_spark_runner.spark.rows.group_writer import GroupWriter
from beam_spark_runner.spark.rows.writing import Outlet

ONLY_KEY = b""
"""Under which all values of a side input are grouped."""


def grouped_coder(coder: WindowedValueCoder) -> WindowedValueCoder:
    """Return the coder of a side input's panes, by that of its elements."""
    values = IterableCoder(coder.wrapped_value_coder)
    return WindowedValueCoder(TupleCoder((BytesCoder(), values)), coder.window_coder)


class ViewWriter(GroupWriter):
    """Rows of values with their windows, all under ``ONLY_KEY``."""

    def __init__(self, edge: Edge, coder: WindowedValueCoder, outlet: Outlet) -> None:
        pairs = TupleCoder((BytesCoder(), coder.wrapped_value_coder))
        super().__init__(edge, WindowedValueCoder(pairs, coder.window_coder), outlet)
        accept_pairs = self.accept_chunk

        def accept_values(values: list[Any], origins: list[WindowedValue]) -> None:
            accept_pairs([(ONLY_KEY, value) for value in values], origins)

        self.accept_chunk = accept_values  # type: ignore[method-assign]
