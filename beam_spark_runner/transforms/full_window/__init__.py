"""All elements of a partition as one window that fires at the end of the input.

The modules that run in SDK harnesses are pickled by value, so that harnesses do not need this
package.
"""

from apache_beam.internal import cloudpickle

from beam_spark_runner.transforms.full_window import (
    coding,
    element_sorter,
    functions,
    handover,
    keys,
    mapping,
    ordering,
    partition_records,
    runs,
    sorting,
    threaded,
    whole,
)
from beam_spark_runner.transforms.full_window.keys import Order
from beam_spark_runner.transforms.full_window.partition import FullWindowPartition

__all__ = ["FullWindowPartition", "Order"]

for _module in (
    coding,
    element_sorter,
    functions,
    handover,
    keys,
    mapping,
    ordering,
    partition_records,
    runs,
    sorting,
    threaded,
    whole,
):
    cloudpickle.register_pickle_by_value(_module)
