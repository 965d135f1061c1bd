"""A job server with Spark: code of its clients runs in SDK harnesses, and nowhere else."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import grpc
import pytest
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.portability.api import beam_runner_api_pb2 as pb
from apache_beam.transforms.environments import EmbeddedPythonEnvironment

from tests.canaries import (
    NAMED,
    NONE,
    ODD,
    UNKNOWN,
    UNUSED,
    Canaries,
    everything,
    give_window_fns,
    windows,
    writes,
)
from tests.harness.test_job_server import Server

pytestmark = [pytest.mark.grpc, pytest.mark.slow]

SOON_S = 240.0
_STATES = beam_job_api_pb2.JobState
_LAST = {_STATES.DONE, _STATES.FAILED, _STATES.CANCELLED}
_CODE = {python_urns.PICKLED_CODER, python_urns.PICKLED_DOFN_INFO}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    here = Server(tmp_path_factory.mktemp("server"))
    with grpc.insecure_channel(here.url) as channel:
        yield beam_job_api_pb2_grpc.JobServiceStub(channel)
    here.program.send(signal.SIGTERM)
    assert here.program.end(60).code == 0


def proto_of(build: Callable[[beam.Pipeline], object]) -> pb.Pipeline:
    p = beam.Pipeline()
    build(p)
    return p.to_runner_api(default_environment=EmbeddedPythonEnvironment.default())


def run(service: Any, pipeline: pb.Pipeline, *, is_streaming: bool) -> tuple[Any, str]:
    """Run a pipeline; return its last state, and the text of its messages."""
    asked = beam_job_api_pb2.PrepareJobRequest(job_name="canary", pipeline=pipeline)
    asked.pipeline_options.update(
        {
            "beam:option:streaming:v1": is_streaming,
            "beam:option:environment_cache_millis:v1": 60_000,
        }
    )
    prepared = service.Prepare(asked, timeout=SOON_S).preparation_id
    job = service.Run(
        beam_job_api_pb2.RunJobRequest(preparation_id=prepared), timeout=SOON_S
    ).job_id
    states = service.GetStateStream(beam_job_api_pb2.GetJobStateRequest(job_id=job), timeout=SOON_S)
    last = next(each.state for each in states if each.state in _LAST)
    messages = service.GetMessageStream(
        beam_job_api_pb2.JobMessagesRequest(job_id=job), timeout=SOON_S
    )
    said = [each.message_response.message_text for each in messages]
    return last, "\n".join(said)


def check_run(service: Any, pipeline: pb.Pipeline, folder: Path, *, is_streaming: bool) -> set[str]:
    """Run a pipeline full of canaries; return the URNs of those that its harnesses unpickled."""
    canaries = Canaries(folder / "canaries", pipeline)
    state, said = run(service, pipeline, is_streaming=is_streaming)
    assert canaries.fired_outside_harnesses() == {}
    assert state == _STATES.DONE, said
    return canaries.urns_fired()


@pytest.mark.parametrize("is_streaming", [False, True], ids=["batch", "streaming"])
def test_code_of_all_kinds(service: Any, tmp_path: Path, *, is_streaming: bool) -> None:
    fired = check_run(service, proto_of(everything), tmp_path, is_streaming=is_streaming)
    combining = {python_urns.PICKLED_COMBINE_FN, python_urns.PICKLED_VIEWFN}
    assert fired >= _CODE | combining, fired


@pytest.mark.parametrize("is_streaming", [False, True], ids=["batch", "streaming"])
@pytest.mark.parametrize("environment", [pytest.param(NAMED, marks=pytest.mark.rare), NONE, UNUSED])
def test_window_fns(service: Any, environment: str, tmp_path: Path, *, is_streaming: bool) -> None:
    pipeline = proto_of(windows)
    give_window_fns(environment, pipeline)
    fired = check_run(service, pipeline, tmp_path, is_streaming=is_streaming)
    assert fired >= _CODE | {python_urns.PICKLED_WINDOWFN}, fired


@pytest.mark.parametrize("environment", [UNKNOWN, ODD])
def test_window_fns_that_no_sdk_can_run(service: Any, environment: str, tmp_path: Path) -> None:
    pipeline = proto_of(windows)
    give_window_fns(environment, pipeline)
    canaries = Canaries(tmp_path / "canaries", pipeline)
    with pytest.raises(grpc.RpcError) as raised:
        run(service, pipeline, is_streaming=False)
    assert "into visits: " in raised.value.details()
    assert "the windowing strategy" in raised.value.details()
    assert canaries.fired() == {}


@pytest.mark.rare
def test_sinks_of_files(service: Any, tmp_path: Path) -> None:
    fired = check_run(service, proto_of(writes(tmp_path / "out")), tmp_path, is_streaming=False)
    assert fired >= _CODE, fired
    assert [*tmp_path.glob("out/text*")]
