"""The ports of a job server, and the gRPC services at them."""

import socket
from collections.abc import Callable
from concurrent import futures

import grpc
from apache_beam.portability.api import beam_artifact_api_pb2_grpc, beam_job_api_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import HealthServicer

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.harness.fn_api.serving import stop_serving
from beam_spark_runner.job.access import (
    KEEPALIVE_TIMEOUT_MS,
    check_files,
    server_credentials,
    server_interceptors,
)
from beam_spark_runner.job.server.job_service import JobService
from beam_spark_runner.job.server.jobs import Jobs
from beam_spark_runner.job.server.legacy import LegacyRetrievalService, LegacyStagingService
from beam_spark_runner.job.server.staging import StagingService
from beam_spark_runner.job.server.streaming_jobs_service import StreamingJobsService
from beam_spark_runner.job.streaming_jobs import add_to_server
from beam_spark_runner.options.server_options import ServerConfig

_CALLS_OF_A_CLIENT = 2  # the streams of its job's states and messages
_MORE_CALLS = 500  # unary calls, and streams of ended jobs
_MAX_MESSAGE_BYTES = 256 << 20
_KEEPALIVE_MS = 300_000
_OPTIONS = [
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.http2.max_ping_strikes", 0),  # SDKs send pings while they have no open calls
    ("grpc.so_reuseport", 0),  # so that a port that is in use is an error
    # A client whose machine is gone ends no call, each of which has a thread.
    ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),  # streams of a job's states have few messages
]
_JOB_SERVICE = "org.apache.beam.model.job_management.v1.JobService"
_ANY_ADDRESS = ("0.0.0.0", "::", "[::]")


class JobApi:
    """The gRPC server, which runs until ``stop``. All services are available at both ports.

    gRPC starts threads, so that no process may be forked without exec afterwards.

    Args:
        config: The configuration of the server.
        jobs: The jobs of the server.
        spark_ui_url: See ``JobService``.
        before_start: Is called once the ports are this server's, before clients are served.
        follow_health: Calls a function now and at each change with whether the server is ready;
            ``grpc.health.v1`` says so.

    Attributes:
        url: HOST:PORT at which clients reach the job service.
        artifact_url: HOST:PORT at which clients stage files.

    Raises:
        OptionsError: A port is in use, or a file of ``ServerConfig.access`` is invalid.
    """

    def __init__(
        self,
        config: ServerConfig,
        jobs: Jobs,
        spark_ui_url: Callable[[], str | None] = lambda: None,
        before_start: Callable[[], None] = lambda: None,
        follow_health: Callable[[Callable[[bool], None]], None] = lambda tell: tell(True),
    ) -> None:
        check_files(config.access)
        self._credentials = server_credentials(config.access)
        jobs_with_clients = config.max_waiting_jobs + config.max_concurrent_jobs
        # Each call has a thread; the pool starts threads as they are needed.
        max_calls = _CALLS_OF_A_CLIENT * jobs_with_clients + _MORE_CALLS
        self._threads = futures.ThreadPoolExecutor(max_calls, thread_name_prefix="job-api")
        self._server = grpc.server(
            self._threads,
            options=_OPTIONS,
            interceptors=server_interceptors(config.access),
            maximum_concurrent_rpcs=max_calls,
        )
        self.url = self._listen("job_port", config, config.job_port)
        self.artifact_url = self._listen("artifact_port", config, config.artifact_port)
        beam_job_api_pb2_grpc.add_JobServiceServicer_to_server(
            JobService(
                jobs,
                self.artifact_url,
                spark_ui_url,
                continues_streams=config.jobs_dir is not None,
            ),
            self._server,
        )
        beam_artifact_api_pb2_grpc.add_ArtifactStagingServiceServicer_to_server(
            StagingService(jobs.files_of), self._server
        )
        beam_artifact_api_pb2_grpc.add_LegacyArtifactStagingServiceServicer_to_server(
            LegacyStagingService(), self._server
        )
        beam_artifact_api_pb2_grpc.add_LegacyArtifactRetrievalServiceServicer_to_server(
            LegacyRetrievalService(), self._server
        )
        add_to_server(StreamingJobsService(jobs), self._server)
        health = HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(health, self._server)
        follow_health(lambda is_ready: _tell(health, is_ready=is_ready))
        before_start()
        self._server.start()

    def _listen(self, option: str, config: ServerConfig, port: int) -> str:
        """Open a port; return its HOST:PORT for clients.

        Raises:
            OptionsError: The port is in use, or the host is not an address of this machine.
        """
        host = _in_url(config.job_host)
        try:
            bound = self._bind(f"{host}:{port}")
        except RuntimeError:
            bound = 0
        if not bound:
            raise OptionsError(option, f"cannot listen at {host}:{port}; is the port in use?")
        if config.advertised_host is not None:
            return f"{_in_url(config.advertised_host)}:{bound}"
        return f"{socket.gethostname() if config.job_host in _ANY_ADDRESS else host}:{bound}"

    def _bind(self, address: str) -> int:
        if self._credentials is None:
            return int(self._server.add_insecure_port(address))
        return int(self._server.add_secure_port(address, self._credentials))

    def stop(self) -> None:
        """Close the ports, and a moment later the calls that have not ended."""
        stop_serving(self._server, self._threads)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _tell(health: HealthServicer, *, is_ready: bool) -> None:
    status = health_pb2.HealthCheckResponse
    for service in ("", _JOB_SERVICE):
        health.set(service, status.SERVING if is_ready else status.NOT_SERVING)
