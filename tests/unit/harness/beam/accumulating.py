"""Accumulators whose output is kept, and what goes into them."""

from collections.abc import Callable
from typing import Any

import apache_beam as beam
from apache_beam.coders import FastPrimitivesCoder
from apache_beam.transforms.window import GlobalWindow, GlobalWindows, TimestampCombiner
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.beam.accumulators import Accumulators
from beam_spark_runner.harness.values.encoded_keys import Places

CODER = FastPrimitivesCoder()
PLACES = Places(CODER)
EARLIEST = TimestampCombiner.get_impl(TimestampCombiner.OUTPUT_AT_EARLIEST, GlobalWindows()).combine
Emitted = list[tuple[Any, WindowedValue]]


def accumulators(
    combine_fn: Any, size_of: Callable[[Any], int] = len, **options: Any
) -> tuple[Accumulators, Emitted]:
    emitted: Emitted = []

    def emit(values: list[Any], origins: list[WindowedValue]) -> None:
        assert values
        emitted.extend(zip(values, origins, strict=True))

    return Accumulators(combine_fn, size_of, emit, PLACES, **options), emitted


class Plus(beam.CombineFn):  # type: ignore[misc]
    """Its accumulators are numbers: every call returns another one."""

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, value: int) -> int:
        return accumulator + value

    def merge_accumulators(self, accumulators: list[int]) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator


def origins(count: int, window: Any = GlobalWindow()) -> list[WindowedValue]:  # noqa: B008
    return [WindowedValue(None, 0, (window,))] * count
