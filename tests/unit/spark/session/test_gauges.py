"""Names of gauges in Spark's metrics system."""

from types import SimpleNamespace
from typing import Any

import pytest

from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.session.gauges import set_gauges


class Spark:
    """Notes what becomes of gauges."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.values: dict[str, float] = {}
        self.calls = 0
        monkeypatch.setattr(pyspark_internals, "gauge", self._gauge)
        monkeypatch.setattr(pyspark_internals, "set_gauge", self._set)

    def _gauge(self, context: Any, name: str) -> str:
        assert name not in self.values
        self.values[name] = 0.0
        return name

    def _set(self, gauge: str, value: float) -> None:
        self.calls += 1
        self.values[gauge] = value


def application(id_: str) -> Any:
    return SimpleNamespace(applicationId=id_)


def test_names_that_no_sink_takes_are_replaced_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Spark(monkeypatch)
    set_gauges(
        application("names"),
        {("beam", "Map(<lambda at a.py:7>)"): 1, ("beam", "Map lambda at a py 7 "): 2, ("b",): 0},
    )
    assert spark.values == {
        "beam.Map_lambda_at_a_py_7_": 1,
        "beam.Map_lambda_at_a_py_7__2": 2,
        "b": 0,
    }


def test_gauges_are_used_again_in_an_application_and_only_what_has_changed_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark = Spark(monkeypatch)
    for value in (1, 1, 2):
        set_gauges(application("again"), {("a",): value})
    assert (spark.values, spark.calls) == ({"a": 2}, 2)
    spark.values.clear()
    set_gauges(application("another"), {("a",): 2})
    assert spark.values == {"a": 2}
