"""What clients send to a job server: pipelines, options, ids, files."""

import logging
import random
from collections.abc import Iterator, Sequence
from functools import cached_property
from tempfile import mkdtemp
from typing import Any, TypeAlias, cast

from apache_beam.portability.api import beam_artifact_api_pb2, beam_job_api_pb2
from google.protobuf.message import Message

from beam_spark_runner.core.errors import SparkSetupError
from beam_spark_runner.job.server.job_service import JobService
from beam_spark_runner.job.server.jobs import Jobs
from beam_spark_runner.job.server.staging import StagingService, replace_artifacts
from beam_spark_runner.job.server.staging_area import StagingArea
from beam_spark_runner.options.server_options import ServerConfig
from tests.fuzz.corpus import NO_STAGE, Recorded, framed, frames
from tests.fuzz.protos import Pool
from tests.fuzz.targets.base import Context, Messages, MessageTarget, Target

Prepare: TypeAlias = beam_job_api_pb2.PrepareJobRequest
Wrapper: TypeAlias = beam_artifact_api_pb2.ArtifactResponseWrapper
_NOWHERE = StagingArea("/nowhere")
_OPTIONS = ("parallelism", "max_parallelism", "drain", "help", "update", "streaming", "other")


def _no_spark(config: Any, pool: str) -> Any:
    raise SparkSetupError("there is no Spark.", "Start one.")


def _jobs() -> Jobs:
    """Return the jobs of a server without Spark."""
    logging.disable()
    return Jobs(ServerConfig(artifacts_dir=mkdtemp(), max_waiting_jobs=1 << 30), _no_spark)


class Pipelines(MessageTarget[Prepare]):
    """Pipelines and options: prepared, run until there is no Spark, and looked at."""

    name = "pipelines"
    share = 0.3

    def begin(self) -> None:
        self._jobs = _jobs()
        self._service = JobService(self._jobs, "localhost:1", lambda: None)

    def message(self, random_: random.Random) -> Message:
        changed: Prepare = super().message(random_)
        if random_.random() < 0.3:
            value = random_.choice(("1", "-1", "x", "9" * 400, True, None, 1e300, [1, {"a": None}]))
            changed.pipeline_options[f"beam:option:{random_.choice(_OPTIONS)}:v1"] = value
        if random_.random() < 0.8:  # files need to be staged, which is another target
            for each in changed.pipeline.components.environments.values():
                del each.dependencies[:]
        return cast(Message, changed)

    def take(self, message: Prepare) -> object:
        call = Context()
        id_ = self._service.Prepare(message, call).preparation_id
        try:
            run = beam_job_api_pb2.RunJobRequest(preparation_id=id_)
            job = self._service.Run(run, call).job_id
        finally:
            self._jobs._preparations.pop(id_, None)
        states = self._service.GetStateStream(beam_job_api_pb2.GetJobStateRequest(job_id=job), call)
        last = [each.state for each in states][-1]
        assert last == beam_job_api_pb2.JobState.FAILED
        asked = beam_job_api_pb2.GetJobPipelineRequest(job_id=job)
        self._service.GetPipeline(asked, call).SerializeToString()
        metrics = beam_job_api_pb2.GetJobMetricsRequest(job_id=job)
        self._service.GetJobMetrics(metrics, call).SerializeToString()
        self._jobs._jobs.pop(job)
        return last


class Staging(Target):
    """The files of a pipeline, one message after the other."""

    name = "staging"
    share = 0.3

    def __init__(self, prepared: Sequence[Prepare], wrappers: Sequence[Wrapper]) -> None:
        self._prepared = [
            each
            for each in prepared
            if any(one.dependencies for one in each.pipeline.components.environments.values())
        ]
        self._wrappers = wrappers

    @cached_property
    def _pool(self) -> Pool:
        return Pool(self._wrappers)

    def begin(self) -> None:
        self._jobs = _jobs()
        self._service = StagingService(self._jobs.files_of)

    def case(self, random_: random.Random) -> bytes:
        number = random_.randrange(len(self._prepared))
        said = list(self._answers(self._prepared[number], random_))
        return b"".join(framed(Recorded("", number, each)) for each in said)

    def _answers(self, prepared: Prepare, random_: random.Random) -> Iterator[bytes]:
        """Answer as a client does, sometimes with what it should not."""
        piece = beam_artifact_api_pb2.GetArtifactResponse(data=b"abc")
        for environment in prepared.pipeline.components.environments.values():
            resolved = beam_artifact_api_pb2.ResolveArtifactsResponse(
                replacements=environment.dependencies
            )
            answers = [Wrapper(resolve_artifact_response=resolved)]
            for _ in environment.dependencies:
                answers += [Wrapper(get_artifact_response=piece)] * random_.randrange(2)
                answers.append(Wrapper(get_artifact_response=piece, is_last=True))
            for each in answers:
                if random_.random() < 0.2:
                    yield self._pool.mutated(each, random_).SerializeToString()
                elif random_.random() < 0.97:
                    yield each.SerializeToString()

    def run(self, case: bytes) -> object:
        said = [Recorded("", NO_STAGE, b""), *frames(case)]
        prepared = Prepare()
        prepared.CopyFrom(self._prepared[max(said[-1].stage, 0) % len(self._prepared)])
        for each in prepared.pipeline.components.environments.values():
            for one in each.dependencies:
                one.type_payload = b""  # no hash that the content cannot have
        id_ = self._jobs.prepare(prepared)
        answers = [Wrapper.FromString(each.coded) for each in said]
        answers[0].staging_token = id_
        try:
            asked = list(self._service.ReverseArtifactRetrievalService(iter(answers), Context()))
            replace_artifacts(
                prepared.pipeline, self._jobs.files_of(id_).located_artifacts(), _NOWHERE
            )
            return asked
        finally:
            self._jobs._preparations.pop(id_).place.remove()


class Ids(Target):
    """Calls with an id."""

    name = "job-ids"
    share = 0.3
    _calls = (
        ("GetState", beam_job_api_pb2.GetJobStateRequest),
        ("GetPipeline", beam_job_api_pb2.GetJobPipelineRequest),
        ("Cancel", beam_job_api_pb2.CancelJobRequest),
        ("GetJobMetrics", beam_job_api_pb2.GetJobMetricsRequest),
        ("GetStateStream", beam_job_api_pb2.GetJobStateRequest),
        ("GetMessageStream", beam_job_api_pb2.JobMessagesRequest),
        ("Run", beam_job_api_pb2.RunJobRequest),
        ("GetJobs", beam_job_api_pb2.GetJobsRequest),
        ("DescribePipelineOptions", beam_job_api_pb2.DescribePipelineOptionsRequest),
    )

    def __init__(self) -> None:
        self._pools = [Pool([type_()]) for _, type_ in self._calls]

    def begin(self) -> None:
        self._service = JobService(_jobs(), "localhost:1", lambda: None)

    def case(self, random_: random.Random) -> bytes:
        number = random_.randrange(len(self._calls))
        message = self._calls[number][1]()
        if message.DESCRIPTOR.fields:
            field = message.DESCRIPTOR.fields[0].name
            setattr(message, field, random_.choice(self._pools[number].texts))
        return bytes([number]) + bytes(message.SerializeToString())

    def run(self, case: bytes) -> object:
        name, type_ = self._calls[case[0] % len(self._calls)]
        answer = getattr(self._service, name)(type_.FromString(case[1:]), Context())
        return list(answer) if name.endswith("Stream") else answer.SerializeToString()


def targets(messages: Messages) -> list[Target]:
    """Return the targets of this module."""
    prepared = [each for _, each in messages.of(Prepare)]
    wrappers = [each for _, each in messages.of(Wrapper)]
    return [Pipelines(prepared), Staging(prepared, wrappers), Ids()]
