"""Jobs of a server whose ``--jobs_dir`` cannot be read or written for a while, or for longer."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.core.errors import CheckpointStorageError, SparkSetupError
from beam_spark_runner.job.run import recovery
from beam_spark_runner.job.server.ending import Ending
from beam_spark_runner.job.server.stored_job import StoredJob
from beam_spark_runner.recovery.batch_start import BatchStart
from tests.pipelines.served_jobs import SOON_S, names_in, serving, state_of
from tests.unit.job.server.served import states_of

pytestmark = pytest.mark.grpc


def test_a_job_whose_storage_fails_stays_and_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise CheckpointStorageError("there", "unavailable")

    with serving(tmp_path) as server:
        monkeypatch.setattr(recovery, "BatchStart", fail)
        jobs = [server.submit(lambda p: p | beam.Impulse()) for _ in range(2)]
        assert [state_of(job) for job in jobs] == ["FAILED", "FAILED"]
        server.jobs.cancel(jobs[0].job_id)
    monkeypatch.undo()
    with serving(tmp_path) as server:
        assert server.jobs.job(jobs[0].job_id).record.state == "CANCELLED"
        again = server.jobs.job(jobs[1].job_id)
        assert state_of(again) == "DONE"
        # Clients end at the first last state that they see.
        assert states_of(again).count("FAILED") == 0


def test_storage_that_is_away_for_a_moment_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: Counter[str] = Counter()

    def fails_once(kind: type, name: str) -> None:
        real = getattr(kind, name)

        def call(*arguments: Any, **named: Any) -> Any:
            failures[name] += 1
            if failures[name] == 1:
                raise CheckpointStorageError("there", "away")
            return real(*arguments, **named)

        monkeypatch.setattr(kind, name, call)

    for kind, name in ((StoredJob, "next_start"), (BatchStart, "_look"), (Ending, "stored_end")):
        fails_once(kind, name)
    with serving(tmp_path) as server:
        job = server.submit(lambda p: p | beam.Impulse())
        assert state_of(job) == "DONE"
    assert min(failures.values()) > 1
    assert len(failures) == 3


def test_a_job_that_waits_for_its_storage_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived = threading.Event()

    def fail(_: StoredJob) -> int:
        arrived.set()
        raise CheckpointStorageError("there", "away")

    monkeypatch.setattr(StoredJob, "next_start", fail)
    with serving(tmp_path) as server:
        job = server.submit(lambda p: p | beam.Impulse())
        assert arrived.wait(SOON_S)
        server.jobs.cancel(job.job_id)
        assert state_of(job) == "CANCELLED"
    assert [name.rpartition(".")[2] for name in names_in(tmp_path)] == ["ended"]


def test_a_cancelled_job_that_cannot_start_is_cancelled(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        has_id, ids = threading.Event(), list[str]()

        def fail() -> None:
            assert has_id.wait(SOON_S)
            server.jobs.cancel(ids[0])
            raise SparkSetupError("there is no Spark", "")

        server.before_open = fail
        job = server.submit(lambda p: p | beam.Impulse())
        ids.append(job.job_id)
        has_id.set()
        assert state_of(job) == "CANCELLED"
    assert [name.rpartition(".")[2] for name in names_in(tmp_path)] == ["ended"]
