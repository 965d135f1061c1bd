"""Public transforms, for users of Spark, that Beam itself does not have.

They do not import PySpark, so that SDK harnesses without it can run them. Each is imported when it
is first accessed: those of Kafka register coders, which Beam saves in every main session, and SDK
harnesses that load one would then need this package.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from beam_spark_runner.transforms.declarative import (
        BagState,
        CombiningState,
        DeclarationContext,
        DeclarationError,
        DeclarativeKeyedProcess,
        EventTimer,
        FiredTimer,
        KeyedProcess,
        MapState,
        OrderedListState,
        ProcessingTimer,
        SetState,
        Shared,
        StateFuture,
        ValueState,
    )
    from beam_spark_runner.transforms.full_window import FullWindowPartition, Order
    from beam_spark_runner.transforms.kafka import ReadFromKafka, WriteToKafka
    from beam_spark_runner.transforms.spark_tables import (
        ReadFromSpark,
        SparkWriteResult,
        WriteToSpark,
    )

__all__ = [
    "BagState",
    "CombiningState",
    "DeclarationContext",
    "DeclarationError",
    "DeclarativeKeyedProcess",
    "EventTimer",
    "FiredTimer",
    "FullWindowPartition",
    "KeyedProcess",
    "MapState",
    "Order",
    "OrderedListState",
    "ProcessingTimer",
    "ReadFromKafka",
    "ReadFromSpark",
    "SetState",
    "Shared",
    "SparkWriteResult",
    "StateFuture",
    "ValueState",
    "WriteToKafka",
    "WriteToSpark",
]

_PACKAGES = {
    "BagState": "declarative",
    "CombiningState": "declarative",
    "DeclarationContext": "declarative",
    "DeclarationError": "declarative",
    "DeclarativeKeyedProcess": "declarative",
    "EventTimer": "declarative",
    "FiredTimer": "declarative",
    "KeyedProcess": "declarative",
    "MapState": "declarative",
    "OrderedListState": "declarative",
    "ProcessingTimer": "declarative",
    "SetState": "declarative",
    "Shared": "declarative",
    "StateFuture": "declarative",
    "ValueState": "declarative",
    "FullWindowPartition": "full_window",
    "Order": "full_window",
    "ReadFromKafka": "kafka",
    "ReadFromSpark": "spark_tables",
    "SparkWriteResult": "spark_tables",
    "WriteToKafka": "kafka",
    "WriteToSpark": "spark_tables",
}


def __getattr__(name: str) -> object:
    """Import a transform, or the package of some (PEP 562)."""
    if name in _PACKAGES.values():
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _PACKAGES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PACKAGES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, *set(_PACKAGES.values())]
