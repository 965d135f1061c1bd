"""Shows the runner's metrics as gauges in Spark's own metrics system."""

import re
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from beam_spark_runner.spark import pyspark_internals

_NO_NAME = re.compile(r"[^\w-]+")


class _Gauge(NamedTuple):
    java: Any
    name: str
    value: float


_LOCK = threading.Lock()
_GAUGES: dict[str, dict[tuple[str, ...], _Gauge]] = {}  # by application: they last as long as it


def set_gauges(context: Any, values: Mapping[tuple[str, ...], float]) -> None:
    """Have Spark's metrics system show some values, as gauges of its source ``AccumulatorSource``.

    Spark does not release a gauge before its application ends, so that one of the same name is
    used again.

    Args:
        context: the SparkContext of a classic Spark.
        values: parts of a name -> value. Characters that sinks of Spark may not take are replaced.

    Raises:
        Py4JError: Spark does not answer.
    """
    with _LOCK:
        application = str(context.applicationId)
        for ended in _GAUGES.keys() - {application}:  # a process has one at a time
            del _GAUGES[ended]
        gauges = _GAUGES.setdefault(application, {})
        for name, value in values.items():
            gauge = gauges.get(name)
            if gauge is None:
                gauge_name = _unused_name(
                    _name_of(name), {known_gauge.name for known_gauge in gauges.values()}
                )
                gauge = _Gauge(pyspark_internals.gauge(context, gauge_name), gauge_name, 0.0)
            if gauge.value != value:
                pyspark_internals.set_gauge(gauge.java, value)
            gauges[name] = gauge._replace(value=value)


def _name_of(name: tuple[str, ...]) -> str:
    return ".".join(_NO_NAME.sub("_", part) for part in name)


def _unused_name(name: str, used: set[str]) -> str:
    """Return a name that is none of those that are taken."""
    candidate, number = name, 1
    while candidate in used:
        number += 1
        candidate = f"{name}_{number}"
    return candidate
