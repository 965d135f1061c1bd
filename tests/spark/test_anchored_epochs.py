"""Epochs whose partitions are anchored: the same results, and what changes with the anchor."""

import functools
import itertools
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.job.run import clusters
from beam_spark_runner.job.watching.partition_advice import PartitionAdvice
from beam_spark_runner.spark.driver.anchor import Anchor
from beam_spark_runner.spark.driver.cluster import SparkClusterSettings
from beam_spark_runner.spark.pyspark_internals import physical_plan
from tests.harvest import harvest
from tests.segments import cut_at_each_exchange
from tests.spark.test_deep_streams import events, passed_through

pytestmark = pytest.mark.spark


class Planned:
    """The anchors that were made, and of which of them each physical plan reads rows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, outdated_at: int) -> None:
        """Have the anchor outdated when it is asked for the nth time."""
        self.anchors = 0
        self.plans: list[int] = []
        self._asked, self._outdated_at = 0, outdated_at
        make = Anchor.__init__

        def making(anchor: Anchor, *arguments: Any) -> None:
            make(anchor, *arguments)
            assert anchor.has_effect
            self.anchors += 1

        def planning(frame: Any) -> Any:
            self.plans.append(self.anchors)
            return physical_plan(frame)

        monkeypatch.setattr(Anchor, "__init__", making)
        monkeypatch.setattr(Anchor, "is_outdated", lambda _: self._is_outdated())
        monkeypatch.setattr("beam_spark_runner.spark.driver.plan_copies.physical_plan", planning)
        settings = functools.partial(_anchored, SparkClusterSettings)
        monkeypatch.setattr(clusters, "SparkClusterSettings", settings)

    def _is_outdated(self) -> bool:
        self._asked += 1
        return self._asked == self._outdated_at


def _anchored(settings: Any, **fields: Any) -> SparkClusterSettings:
    made: SparkClusterSettings = settings(**{**fields, "is_anchored": True, "in_one_task": False})
    return made


def build(pipeline: beam.Pipeline) -> dict[str, Any]:
    return {"passed": passed_through(pipeline | events(), groupings=2)}


@pytest.mark.parametrize(
    "is_cut",
    [False, pytest.param(True, marks=pytest.mark.rare)],
    ids=["one Spark job", "one for each exchange"],
)
def test_another_anchor_has_each_segment_planned_once_more(
    spark_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cut: bool
) -> None:
    if is_cut:
        cut_at_each_exchange(monkeypatch)
    before = _cached(spark_session)
    expected = harvest(spark_session, build, f"--checkpoint_dir={tmp_path / 'anywhere'}")
    planned = Planned(monkeypatch, outdated_at=2)
    found = harvest(spark_session, build, f"--checkpoint_dir={tmp_path / 'anchored'}")
    assert sorted(found["passed"]) == sorted(expected["passed"])
    assert found["passed"]
    assert planned.anchors == 2
    first, second = planned.plans.count(1), planned.plans.count(2)
    assert first == second
    assert (first > 1) is is_cut
    assert _cached(spark_session) <= before


@pytest.mark.timeout(180)
def test_another_number_of_partitions_has_another_anchor(
    spark_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _cached(spark_session)
    expected = harvest(spark_session, build, f"--checkpoint_dir={tmp_path / 'anywhere'}")
    planned = Planned(monkeypatch, outdated_at=0)
    numbers = itertools.chain([2, 3], itertools.repeat(1))
    monkeypatch.setattr(PartitionAdvice, "following", lambda self, partitions: next(numbers))
    flags = "--autoscale=1..4", f"--checkpoint_dir={tmp_path / 'anchored'}"
    found = harvest(spark_session, build, *flags)
    assert sorted(found["passed"]) == sorted(expected["passed"])
    assert planned.plans == [1, 2, 3]
    assert _cached(spark_session) <= before


def _cached(session: Any) -> set[int]:
    """Return the ids of what Spark has cached, which other tests of the session may have left."""
    return set(session.sparkContext._jsc.getPersistentRDDs())
