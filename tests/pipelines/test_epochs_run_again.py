"""Epochs of several jobs, of which one runs again."""

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.test_stream import TestStream as Stream

from beam_spark_runner.driving.cluster import EpochJob, EpochResult, StoredInput
from beam_spark_runner.driving.epoch_segments import EpochSegments
from beam_spark_runner.in_process.cluster import InProcessCluster
from beam_spark_runner.scheduling.attempts import Rejected, Verdict
from beam_spark_runner.spark.driver.cluster import SparkCluster
from tests.harvest import harvest
from tests.segments import cut_at_each_exchange
from tests.spark.test_deep_streams import pairs, seen
from tests.stateful import Number


def test_what_runs_again(
    spark_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job whose tasks disagree: it alone. One that cannot read its rows: the epoch."""
    ran: list[str] = []
    kind: Any = InProcessCluster if spark_session is None else SparkCluster
    run, judged = kind.run_epoch, EpochSegments._judged

    def run_with_faults(cluster: Any, job: EpochJob, source: Any) -> EpochResult:
        ran.append("later" if isinstance(source, StoredInput) else "first")
        if isinstance(source, StoredInput) and ran.count("later") == 4:
            next(tmp_path.rglob(source.names[0])).unlink()
        result: EpochResult = run(cluster, job, source)
        return result

    def reject_the_second(here: EpochSegments, reports: Any, this: Any) -> Verdict:
        if ran.count("later") == 1 and isinstance(this.source, StoredInput):
            return Rejected("as the test says")
        return judged(here, reports, this)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        stream = Stream().with_output_types(tuple[str, int]).add_elements(pairs(1, 2))
        stream.add_elements(pairs(3)).advance_watermark_to_infinity()
        numbers = p | stream | seen("first") | beam.ParDo(Number()) | seen("last")
        again = numbers | "again" >> beam.ParDo(Number())
        return {"numbers": numbers, "again": again}

    cut_at_each_exchange(monkeypatch)
    monkeypatch.setattr(kind, "run_epoch", run_with_faults)
    monkeypatch.setattr(EpochSegments, "_judged", reject_the_second)
    found = harvest(spark_session, build, f"--checkpoint_dir={tmp_path}")
    # Epoch by epoch: its second job runs twice; it cannot be read, so that all of it runs
    # again; and the last one ends the stream.
    assert ran[:3] == ["first", "later", "later"]
    assert ran[3:] == ["first", "later", "first", "later", "first", "later"]
    # User code runs again, and what it does to the outside happens at least once.
    assert set(found["numbers"]) == set(found["again"]) == {("a", 0), ("a", 1), ("a", 2)}
    assert (found.counter("first"), found.counter("last")) == (3, 3)
    assert not list(tmp_path.rglob("*.rows"))
