"""Keyed steps whose callbacks are declared by name, and whose state accesses return futures.

The modules that run in SDK harnesses are pickled by value, so that harnesses do not need this
package.
"""

from apache_beam.internal import cloudpickle

from beam_spark_runner.transforms.declarative import (
    combining,
    declared_attributes,
    declared_chain,
    declared_states,
    declaring,
    futures,
    keyed_do_fn,
    keyed_process,
    maps_in_bags,
    named,
    processed,
    returned,
    shared_values,
    waiting_callbacks,
)
from beam_spark_runner.transforms.declarative.declared_attributes import EventTimer, ProcessingTimer
from beam_spark_runner.transforms.declarative.declared_states import (
    BagState,
    CombiningState,
    MapState,
    OrderedListState,
    SetState,
    ValueState,
)
from beam_spark_runner.transforms.declarative.declaring import DeclarationContext
from beam_spark_runner.transforms.declarative.futures import StateFuture
from beam_spark_runner.transforms.declarative.keyed_process import KeyedProcess
from beam_spark_runner.transforms.declarative.keyed_steps import DeclarativeKeyedProcess
from beam_spark_runner.transforms.declarative.named import DeclarationError
from beam_spark_runner.transforms.declarative.processed import FiredTimer
from beam_spark_runner.transforms.declarative.shared_values import Shared

__all__ = [
    "BagState",
    "CombiningState",
    "DeclarationContext",
    "DeclarationError",
    "DeclarativeKeyedProcess",
    "EventTimer",
    "FiredTimer",
    "KeyedProcess",
    "MapState",
    "OrderedListState",
    "ProcessingTimer",
    "SetState",
    "Shared",
    "StateFuture",
    "ValueState",
]

for _module in (
    combining,
    declared_attributes,
    declared_chain,
    declared_states,
    declaring,
    futures,
    keyed_do_fn,
    keyed_process,
    maps_in_bags,
    named,
    processed,
    returned,
    shared_values,
    waiting_callbacks,
):
    cloudpickle.register_pickle_by_value(_module)
