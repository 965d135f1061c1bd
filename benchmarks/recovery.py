"""What ``--batch_job_recovery`` costs and saves: ``python -m benchmarks.recovery [CASE …]``.

``on / off`` runs cases of ``benchmarks`` with and without the option in turn, in one session;
``start`` reads finish records in a local folder, and ``start_s3`` in an S3 server: moto, which it
starts, or the one of ``--s3_endpoint_url``, in whose bucket ``beam-tests`` the records then stay;
``commit`` writes manifests; ``events`` records and replays messages of a job. Machines are shared
and noisy: only ratios of one run are meaningful.
"""

import argparse
import contextlib
import os
import resource
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.job.event_store.event_replay import replay
from beam_spark_runner.job.event_store.job_event_store import open_event_store
from beam_spark_runner.job.files.job_folder import JobFolderAt
from beam_spark_runner.job.watching.record import JobRecord, StateChange
from beam_spark_runner.options.values import checkpoint_folder
from beam_spark_runner.recovery.batch_manifest import BatchManifest, StoredPart, work_folder
from beam_spark_runner.recovery.batch_start import BatchStart
from beam_spark_runner.recovery.finishes import (
    Finish,
    decode_record,
    encode_record,
    finished_partitions,
)
from beam_spark_runner.spark.session.launch import start_classic
from beam_spark_runner.storage.folder_at import folder_at
from beam_spark_runner.storage.mounted_folder import MountedFolder
from benchmarks.cases import CASES
from integration.checkpoint_store import CheckpointStore, environment_of
from integration.object_store import ObjectStore
from integration.started_store import start_store

_CASES = ("word_count", "group_by_key", "three_elements")
_RECORDS = 10_000
_WRITERS = 16
_COMMITS = 50
_EVENTS = 100_000
_EVENTS_AT_ONCE = 1_000  # more wait for a disk that is slow than the store keeps


def on_and_off(case: str, size: int, runs: int) -> None:
    """Print the times of a case with and without the option, each the best of some runs."""
    session = start_classic("local[2]", "benchmarks", {"spark.ui.enabled": "false"})
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="beam-benchmarks-") as scratch:
        folder = Path(scratch)
        options = {
            "off": [],
            "on": ["--batch_job_recovery", f"--checkpoint_dir={folder / 'job'}"],
        }
        for number in range(runs + 1):
            for name, flags in options.items():
                began = time.perf_counter()
                pipeline = beam.Pipeline(
                    runner=SparkPortableRunner(spark=session),
                    options=PipelineOptions(["--progress=off", *flags]),
                )
                CASES[case].build(pipeline, size, folder)
                pipeline.run().wait_until_finish()
                took_s = time.perf_counter() - began
                if number:  # the first one is cold
                    best[name] = min(best.get(name, took_s), took_s)
    on, off = best["on"], best["off"]
    print(
        f"{case}, {size:,} {CASES[case].unit}: off {off:.2f} s, on {on:.2f} s, "
        f"ratio {on / off:.2f}, difference {on - off:.2f} s",
        flush=True,
    )


def start_over_local_records() -> None:
    """Print the time that a start takes over many finish records in a local folder."""
    with tempfile.TemporaryDirectory(prefix="beam-benchmarks-") as scratch:

        def write(place: str, name: str, content: bytes) -> None:
            Path(place, name).write_bytes(content)

        _start_over_records(JobFolderAt(scratch), write)


def start_over_stored_records(endpoint: str | None) -> None:
    """Print the time that a start takes over many finish records in an S3 server.

    Args:
        endpoint: Its URL. None: a server is started on this machine.
    """
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="beam-benchmarks-")))
        store: CheckpointStore
        if endpoint is None:
            store = stack.enter_context(start_store("S3", scratch))
        else:
            store = ObjectStore(endpoint, scratch)
            stack.enter_context(environment_of(store))
        root = checkpoint_folder("here", store.folder(f"job-{uuid.uuid4().hex}"))
        assert root is not None

        def write(place: str, name: str, content: bytes) -> None:
            folder_at(place, store.settings).create(name, content)

        _start_over_records(JobFolderAt(root, store.settings), write)


def _start_over_records(folder: JobFolderAt, write: Callable[[str, str, bytes], None]) -> None:
    name = work_folder(1)
    folder.make(name)

    def write_record(number: int) -> None:
        finish = Finish(number, _RECORDS, 1 << 40 | number)
        report = reports_pb2.TaskReport(partition=finish.partition, attempt=finish.attempt)
        record = encode_record(report.SerializeToString())
        write(folder.place(name), finish.record_name, record)

    with ThreadPoolExecutor(_WRITERS) as threads:
        list(threads.map(write_record, range(_RECORDS)))

    def start() -> None:
        BatchStart(folder.storage, folder, "plan")
        (found,) = finished_partitions(folder.names(name)).values()
        records = [each.record_name for attempts in found.values() for each in attempts]
        reports = [decode_record(each) for each in folder.read(name, records)]
        assert len(reports) == _RECORDS
        assert all(reports)

    took_s = _timed(start)
    print(f"a start over {_RECORDS:,} finish records in {folder.root}: {took_s:.2f} s", flush=True)


def commits() -> None:
    """Print the time of a commit in a local folder, which is synced."""
    with tempfile.TemporaryDirectory(prefix="beam-benchmarks-", dir=os.getcwd()) as scratch:
        folder = JobFolderAt(scratch)
        start = BatchStart(folder.storage, folder, "plan")
        parts = (StoredPart(run=1, attempts=tuple(range(1 << 40, (1 << 40) + 200)), size_bytes=1),)

        def commit_all() -> None:
            for number in range(1, _COMMITS + 1):
                manifest = BatchManifest(
                    commit=number, fence=start.number, plan="plan", outputs={1: parts, 2: parts}
                )
                start.commit(manifest)

        print(f"a commit: {1_000 * _timed(commit_all) / _COMMITS:.1f} ms", flush=True)


def events() -> None:
    """Print the times and the memory in which messages of a job are recorded, and replayed."""
    with tempfile.TemporaryDirectory(prefix="beam-benchmarks-") as scratch:
        folder = MountedFolder(scratch)

        def record_all() -> None:
            store = open_event_store(
                folder, 1, buffer_bytes=1 << 20, flush_interval_s=1.0, warn=print
            )
            for number in range(_EVENTS):
                message = beam_job_api_pb2.JobMessage(
                    message_id=str(number),
                    time="2026-01-01T00:00:00.000000+00:00",
                    importance=beam_job_api_pb2.JobMessage.JOB_MESSAGE_BASIC,
                    message_text=f"line {number} of user code, of usual length [Read/Map, worker]",
                )
                store.append(message)
                if not number % _EVENTS_AT_ONCE:
                    store.flush()
            store.close()

        def replay_all() -> None:
            job = JobRecord({})
            for event in replay(folder, print):
                (job.states if isinstance(event, StateChange) else job.messages.log).append(event)
            assert job.messages.log.events()[-1].message_id == str(_EVENTS - 1)

        before = _peak_mb()
        record_s, replay_s = _timed(record_all), _timed(replay_all)
        print(
            f"{_EVENTS:,} events recorded in {record_s:.2f} s, and replayed in {replay_s:.2f} s, "
            f"with at most {_peak_mb() - before:.0f} MB more than before",
            flush=True,
        )


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Run what the command line names, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=__doc__)
    others: dict[str, Callable[[], object]] = {
        "start": start_over_local_records,
        "start_s3": lambda: start_over_stored_records(arguments.s3_endpoint_url),
        "commit": commits,
        "events": events,
    }
    names = [*_CASES, *others]
    parser.add_argument("names", nargs="*", help=f"of {', '.join(names)}; all if none is named")
    parser.add_argument("--runs", type=int, default=3, help="of each, apart from a cold one")
    parser.add_argument("--size", type=int, help="instead of each case's own")
    parser.add_argument("--s3_endpoint_url", help="of the S3 server of start_s3")
    arguments = parser.parse_args()
    for name in arguments.names or names:
        if name in others:
            others[name]()
        else:
            on_and_off(name, arguments.size or CASES[name].size, arguments.runs)


if __name__ == "__main__":
    main()
