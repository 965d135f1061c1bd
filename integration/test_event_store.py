"""Events of a job in S3, Azure and HDFS: each start has objects, which are replayed in order."""

import contextlib
from collections.abc import Iterator

import pytest
from apache_beam.portability.api import beam_job_api_pb2

from beam_spark_runner.job.event_store.event_replay import replay
from beam_spark_runner.job.event_store.job_event_store import JobEventStore, open_event_store
from beam_spark_runner.job.watching.record import StateChange
from beam_spark_runner.options.values import required_folder
from beam_spark_runner.storage.folder import Folder
from beam_spark_runner.storage.folder_at import folder_at
from integration.azure_store import start_azure_store
from integration.checkpoint_store import CheckpointStore, environment_of
from integration.hdfs_server import start_hdfs
from integration.object_store import start_object_store


@pytest.fixture(scope="module", params=["S3", "Azure", "HDFS"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CheckpointStore]:
    folder = tmp_path_factory.mktemp("store")
    with contextlib.ExitStack() as stack:
        running: CheckpointStore
        if request.param == "S3":
            running = stack.enter_context(start_object_store(folder / "log"))
        elif request.param == "Azure":
            running = stack.enter_context(start_azure_store(folder))
        else:
            running = stack.enter_context(start_hdfs(folder))
        stack.enter_context(environment_of(running))
        yield running


@pytest.fixture
def folder(store: CheckpointStore, request: pytest.FixtureRequest) -> Folder:
    """The folder of a job, which no other test has."""
    job = folder_at(required_folder("here", store.folder("jobs")), store.settings)
    name: str = request.node.originalname
    return job / name


def opened(folder: Folder, start: int) -> JobEventStore:
    return open_event_store(
        folder, start, buffer_bytes=1 << 20, flush_interval_s=1e6, warn=pytest.fail
    )


def record(folder: Folder, start: int, texts: list[str]) -> None:
    """Record messages, each in a separate object."""
    store = opened(folder, start)
    for text in texts:
        store.append(beam_job_api_pb2.JobMessage(message_text=text))
        assert store.flush(60)
    store.close()


def replayed(folder: Folder) -> list[str]:
    events = replay(folder, pytest.fail)
    return [each.message_text for each in events if not isinstance(each, StateChange)]


def test_the_events_of_all_starts_are_replayed(folder: Folder) -> None:
    assert replayed(folder) == []
    texts = [[f"{start} {number}" for number in range(20)] for start in range(3)]
    for start, of_start in enumerate(texts):
        record(folder, start, of_start)
    assert replayed(folder) == [*texts[0], *texts[1], *texts[2]]


def test_clearing_deletes_the_events_of_all_starts(folder: Folder) -> None:
    record(folder, 1, ["one"])
    store = opened(folder, 2)
    store.append(beam_job_api_pb2.JobMessage(message_text="two"))
    assert store.flush(60)
    store.close(clear=True)
    assert replayed(folder) == []
    store.close(clear=True)
