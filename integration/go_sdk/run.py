"""Runs Go's tests one by one against a job server, and asks it about the jobs of each."""

import os
import re
import signal
import subprocess
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
from apache_beam.portability.api import (
    beam_job_api_pb2,
    beam_job_api_pb2_grpc,
    metrics_pb2,
)
from google.protobuf import json_format

from integration.go_sdk.evidence import EndedJob, missing

_EXPERIMENTS = "beam:option:experiments:v1"
_ELEMENTS = "beam:metric:element_count:v1"
_COUNTERS = "beam:metric:user:sum_int64:v1"
_SERVER_ANSWERS_WITHIN_S = 60.0
_SKIPPED = re.compile(r"^--- SKIP", re.MULTILINE)
_LAST_LINES = 12


class Verdict(Enum):
    """What a test says about the server that it submitted to."""

    SOUND = "sound"
    UNPROVEN = "unproven"  # passed, but the server has no evidence of what it did
    FAILING = "failing"
    SKIPPED = "skipped"
    NO_PIPELINE = "no pipeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one test. ``why``: of all verdicts but a sound pass."""

    verdict: Verdict
    why: str = ""
    jobs: int = 0


class Client:
    """Asks a job server about its jobs."""

    def __init__(self, stub: beam_job_api_pb2_grpc.JobServiceStub) -> None:
        self._stub = stub

    def jobs_with(self, experiment: str) -> list[str]:
        """Return the ids of the jobs that were submitted with ``--experiments=experiment``."""
        answer = self._stub.GetJobs(
            beam_job_api_pb2.GetJobsRequest(), timeout=_SERVER_ANSWERS_WITHIN_S
        )
        return sorted(
            each.job_id
            for each in answer.job_info
            if experiment in json_format.MessageToDict(each.pipeline_options).get(_EXPERIMENTS, ())
        )

    def cancel(self, job_id: str) -> None:
        """Cancel a job; nothing happens to one that has ended."""
        self._stub.Cancel(
            beam_job_api_pb2.CancelJobRequest(job_id=job_id), timeout=_SERVER_ANSWERS_WITHIN_S
        )

    def ended_job(self, job_id: str) -> EndedJob:
        """Return what there is to know of a job that has ended.

        Elements are counted by what bundles whose output was accepted have reported.
        """
        limit = {"timeout": _SERVER_ANSWERS_WITHIN_S}
        pipeline = self._stub.GetPipeline(
            beam_job_api_pb2.GetJobPipelineRequest(job_id=job_id), **limit
        ).pipeline
        error = ""
        state = "UNSPECIFIED"
        for each in self._stub.GetMessageStream(
            beam_job_api_pb2.JobMessagesRequest(job_id=job_id), **limit
        ):
            message = each.message_response
            if message.importance >= beam_job_api_pb2.JobMessage.JOB_MESSAGE_ERROR:
                error = message.message_text
            if each.HasField("state_response"):
                state = beam_job_api_pb2.JobState.Enum.Name(each.state_response.state)
        metrics = self._stub.GetJobMetrics(
            beam_job_api_pb2.GetJobMetricsRequest(job_id=job_id), **limit
        ).metrics
        return EndedJob(
            state=state,
            pipeline=pipeline,
            elements=_elements(metrics.committed),
            counters=counters_of(metrics.committed),
            error=error,
        )


def _elements(infos: list[metrics_pb2.MonitoringInfo]) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for each in infos:
        if each.urn == _ELEMENTS:
            counted[each.labels["PCOLLECTION"]] += _varint(each.payload)
    return dict(counted)


def counters_of(infos: list[metrics_pb2.MonitoringInfo]) -> dict[tuple[str, str, str], int]:
    """Return the counters of users: by step, namespace and name."""
    counted: Counter[tuple[str, str, str]] = Counter()
    for each in infos:
        if each.urn == _COUNTERS:
            labels = each.labels
            counted[labels["PTRANSFORM"], labels["NAMESPACE"], labels["NAME"]] += _varint(
                each.payload
            )
    return dict(counted)


def _varint(coded: bytes) -> int:
    value = 0
    for shift, byte in enumerate(coded):
        value |= (byte & 0x7F) << 7 * shift
    return value


@contextmanager
def client_of(url: str) -> Iterator[Client]:
    """Connect to the job server at ``url``."""
    with grpc.insecure_channel(url, options=[("grpc.max_receive_message_length", -1)]) as channel:
        yield Client(beam_job_api_pb2_grpc.JobServiceStub(channel))


def run_test(
    program: Path, folder: Path, test: str, url: str, client: Client, timeout_s: float, log: Path
) -> Outcome:
    """Run one test with its code in a process of the test's own (LOOPBACK). For any thread.

    Args:
        program: with the test in it.
        folder: of its package, where its data is.
        test: its name.
        url: of the job server.
        client: of the same.
        timeout_s: for the test.
        log: gets what the test has said.
    """
    # No runner knows it. Tests that run side by side have jobs of the same names.
    mark = f"go_test_{uuid.uuid4().hex}"
    command = [
        *(str(program), f"-test.run=^{test}$", "-test.v", "-test.count=1"),
        *("--runner=universal", f"--endpoint={url}", "--environment_type=LOOPBACK"),
        f"--experiments={mark}",
    ]
    with log.open("wb") as out, TemporaryDirectory() as temporary:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "TMPDIR": temporary},  # some write files of one name
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    jobs = client.jobs_with(mark)
    if code is None:
        for each in jobs:
            client.cancel(each)
        return Outcome(verdict=Verdict.FAILING, why=f"no end in {timeout_s:g} s", jobs=len(jobs))
    said = log.read_text(errors="replace")
    if code:
        return Outcome(verdict=Verdict.FAILING, why=_failure(said), jobs=len(jobs))
    if _SKIPPED.search(said) and not jobs:
        return Outcome(verdict=Verdict.SKIPPED, why=_failure(said))
    if not jobs:
        return Outcome(verdict=Verdict.NO_PIPELINE)
    problems = [problem for each in jobs for problem in missing(client.ended_job(each))]
    if problems:
        return Outcome(verdict=Verdict.UNPROVEN, why="; ".join(problems), jobs=len(jobs))
    return Outcome(verdict=Verdict.SOUND, jobs=len(jobs))


def _failure(said: str) -> str:
    """Return the lines that say what was wrong; of a crash, the last ones."""
    lines = said.splitlines()
    found = [line.strip() for line in lines if re.match(r"\s+\w+_test\.go:\d+: ", line)]
    return " | ".join(found or lines[-_LAST_LINES:])[:2_000]
