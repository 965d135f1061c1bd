"""Submits pipelines to a job server, over TLS and with a token if options say so."""

from collections.abc import Callable, Iterator
from typing import Any

import grpc
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from apache_beam.portability.api import (
    beam_artifact_api_pb2_grpc,
    beam_job_api_pb2,
    beam_job_api_pb2_grpc,
    beam_runner_api_pb2,
)
from apache_beam.runners.portability.artifact_service import (
    ArtifactRetrievalService,
    BeamFilesystemHandler,
    offer_artifacts,
)
from apache_beam.runners.portability.portable_runner import JobServiceHandle, PortableRunner

from beam_spark_runner.core.errors import JobServerLostError, OptionsError
from beam_spark_runner.job.access import CONTINUES_STREAMS, SPARK_UI_URL, open_channel
from beam_spark_runner.job.client.lasting_job import LastingJob
from beam_spark_runner.job.client.lost_harnesses import log_losses_at_debug
from beam_spark_runner.job.client.open_streams import StreamsOfProgram
from beam_spark_runner.job.client.reaching import wait_for_server
from beam_spark_runner.job.client.submitted import LOST, SubmittedPipelineResult
from beam_spark_runner.job.prepare.continued_streams import is_continued_stream
from beam_spark_runner.job.watching.program_start import script_name
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.options.server_access import ClientAccess


class Submitter(PortableRunner):  # type: ignore[misc]
    """Beam's PortableRunner, on channels with TLS and a token.

    Args:
        config: The runner's options, with ``job_endpoint`` set.
    """

    def __init__(self, config: RunnerConfig) -> None:
        super().__init__()
        assert config.job_endpoint is not None
        self._endpoint, self._access = config.job_endpoint, config.job_server_access
        self._drains_on_sigterm = config.drains_on_sigterm
        self._name = config.job_name or script_name()
        self._config, self._continues_streams = config, False
        self._channel: grpc.Channel | None = None
        self._spark_ui_url: str | None = None

    def run_portable_pipeline(
        self, pipeline: beam_runner_api_pb2.Pipeline, options: PipelineOptions
    ) -> SubmittedPipelineResult:
        """Submit a pipeline to the job server of --job_endpoint.

        Raises:
            OptionsError: The job server does not answer, or one side does not accept the other.
        """
        result = super().run_portable_pipeline(pipeline, options)
        assert self._channel is not None
        return SubmittedPipelineResult(
            result,
            self._channel,
            self._endpoint,
            drains_on_sigterm=self._drains_on_sigterm,
            name=self._name,
            spark_ui_url=self._spark_ui_url,
        )

    @staticmethod
    def start_and_replace_loopback_environments(pipeline: Any, options: Any) -> Any:
        """Start what runs user code in this process; its losses are those of the server."""
        callbacks = PortableRunner.start_and_replace_loopback_environments(pipeline, options)
        if callbacks:
            log_losses_at_debug()
        return callbacks

    def create_job_service(self, options: PipelineOptions) -> JobServiceHandle:
        """Connect to the job server.

        Raises:
            OptionsError: It does not answer, or one side does not accept the other.
        """
        timeout_s = options.view_as(PortableOptions).job_server_timeout
        wait_for_server(self._endpoint, self._access, timeout_s)
        channel = self._open(self._endpoint)
        ready = grpc.channel_ready_future(channel)
        try:
            ready.result(timeout=timeout_s)
        except grpc.FutureTimeoutError as error:
            ready.cancel()
            channel.close()
            raise OptionsError(
                "job_endpoint", f"no job server has answered at {self._endpoint} in {timeout_s:g} s"
            ) from error
        self._channel = channel
        self._check_that_it_serves(channel, timeout_s)
        return _Handle(
            options,
            channel,
            self._endpoint,
            self._open,
            self._access,
            outlasts_server=self._outlasts_server,
        )

    def _outlasts_server(self, pipeline: beam_runner_api_pb2.Pipeline) -> bool:
        """Whether the next server continues the job."""
        if self._continues_streams and is_continued_stream(pipeline, self._config):
            return True
        # Those are the pipelines in batch, and those that a server without --jobs_dir refuses.
        return self._config.recovers_batch and not self._config.is_streaming

    def _open(self, endpoint: str) -> grpc.Channel:
        return grpc.intercept_channel(open_channel(endpoint, self._access), StreamsOfProgram())

    def _check_that_it_serves(self, channel: grpc.Channel, timeout_s: float) -> None:
        """Make a first call, since Beam repeats it for seconds whatever the answer is.

        Raises:
            OptionsError: The server does not accept the token, or is no job server.
        """
        stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        try:
            _, call = stub.DescribePipelineOptions.with_call(
                beam_job_api_pb2.DescribePipelineOptionsRequest(), timeout=timeout_s
            )
            facts = [tuple(fact) for fact in call.trailing_metadata() or ()]
            self._spark_ui_url = dict(facts).get(SPARK_UI_URL)
            self._continues_streams = CONTINUES_STREAMS in facts
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
                raise OptionsError("job_server_token_file", self._refusal()) from None
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise OptionsError(
                    "job_endpoint", f"what answers at {self._endpoint} is no Beam job server"
                ) from None
            # Any other error may pass: Beam's client tries again.

    def _refusal(self) -> str:
        token_file = self._access.token_file
        if token_file is None:
            return (
                f"the job server at {self._endpoint} demands a token: name a file that contains "
                "the token of its --client_token_file"
            )
        return (
            f"the job server at {self._endpoint} does not accept the token in {token_file}, which "
            "has to be that of its --client_token_file"
        )


class _Handle(JobServiceHandle):  # type: ignore[misc]
    """Beam's JobServiceHandle, which stages files on the same channel as it submits jobs.

    The job server of this package has all services at each of its ports.
    """

    def __init__(
        self,
        options: PipelineOptions,
        channel: grpc.Channel,
        endpoint: str,
        open_: Callable[[str], grpc.Channel],
        access: ClientAccess,
        *,
        outlasts_server: Callable[[beam_runner_api_pb2.Pipeline], bool],
    ) -> None:
        super().__init__(beam_job_api_pb2_grpc.JobServiceStub(channel), options)
        self._outlasts_server = outlasts_server
        self._channel, self._endpoint, self._open = channel, endpoint, open_
        self._access = access

    def stage(
        self,
        proto_pipeline: beam_runner_api_pb2.Pipeline,
        artifact_staging_endpoint: Any,
        staging_session_token: str,
    ) -> None:
        """Send the files of a pipeline, to --artifact_endpoint if it is set."""
        artifact_endpoint = self.artifact_endpoint
        if artifact_endpoint:
            wait_for_server(artifact_endpoint, self._access, self.timeout)
        offer_artifacts(
            beam_artifact_api_pb2_grpc.ArtifactStagingServiceStub(
                channel=self._open(artifact_endpoint) if artifact_endpoint else self._channel
            ),
            ArtifactRetrievalService(BeamFilesystemHandler(None).file_reader),
            staging_session_token,
        )

    def submit(
        self, proto_pipeline: beam_runner_api_pb2.Pipeline
    ) -> tuple[str, Iterator[Any], Iterator[Any]]:
        """Prepare and run a pipeline; return the job's id, its messages and its states.

        A server that stores the job, or was about to, is waited for if it is lost.
        """
        if not self._outlasts_server(proto_pipeline):
            return super().submit(proto_pipeline)  # type: ignore[no-any-return]

        def prepare() -> str:
            prepared = self.prepare(proto_pipeline)
            endpoint = prepared.artifact_staging_endpoint.url
            self.stage(proto_pipeline, endpoint, prepared.staging_session_token)
            return str(prepared.preparation_id)

        job = LastingJob(self.job_service, self._endpoint, self.timeout)
        return job.run_job(prepare(), prepare), job.messages(), job.states()

    def run(self, preparation_id: str) -> tuple[str, Iterator[Any], Iterator[Any]]:
        """Run a prepared pipeline; return the job's id, its messages and its states.

        If the server is lost, the messages end, and the states raise a JobServerLostError.
        """
        job_id, messages, states = super().run(preparation_id)
        return job_id, _until_lost(messages), self._unless_lost(states, job_id)

    def _unless_lost(self, states: Iterator[Any], job_id: str) -> Iterator[Any]:
        try:
            yield from states
        except grpc.RpcError as error:
            if error.code() not in LOST:
                raise
            raise JobServerLostError(self._endpoint, job_id, error.details()) from error


def _until_lost(messages: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from messages
    except grpc.RpcError as error:
        if error.code() not in LOST:
            raise
