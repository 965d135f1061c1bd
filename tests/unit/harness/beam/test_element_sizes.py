"""Elements that cannot be encoded, and so have no size."""

from typing import Any

import pytest
from apache_beam.coders import coders
from apache_beam.runners.worker import opcounters
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.counters import CounterFactory
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.beam.element_sizes import KnownSizes


def counters() -> Any:
    coder = coders.WindowedValueCoder(coders.PickleCoder())
    found = opcounters.OperationCounters(CounterFactory(), "step", coder, 0)
    found.coder_impl = KnownSizes(found.coder_impl)
    return found


def count(found: Any, *values: Any) -> tuple[int, int]:
    """Return the number of elements, and of those with a size."""
    for value in values:
        found.update_from(WindowedValue(value, 0, (GlobalWindow(),)))
        found.update_collect()
    return found.element_counter.value(), found.mean_byte_counter.value()[2]


@pytest.mark.parametrize(
    ("values", "sizes"),
    [
        pytest.param([b"1", 2], 2, id="all have a size"),
        pytest.param([lambda: 1], 0, id="none has"),
        pytest.param([b"1", lambda: 1, b"2"], 2, id="one has none"),
    ],
)
def test_elements_count_with_and_without_a_size(values: list[Any], sizes: int) -> None:
    assert count(counters(), *values) == (len(values), sizes)
