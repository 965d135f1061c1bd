"""SDK harnesses that a worker pool starts: EXTERNAL environments, and Beam's LOOPBACK."""

import logging

import grpc
from apache_beam.portability.api import (
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_runner_api_pb2,
)

from beam_spark_runner.core.errors import EnvironmentStartError

_LOGGER = logging.getLogger(__name__)
_STOP_TIMEOUT_S = 5.0


class PooledHarness:
    """A harness that a worker pool runs. Threads: any."""

    def __init__(
        self,
        payload: beam_runner_api_pb2.ExternalPayload,
        worker_id: str,
        provision: beam_provision_api_pb2.ProvisionInfo,
        timeout_s: float,
    ) -> None:
        """Ask the pool for a harness.

        Raises:
            EnvironmentStartError: The pool does not answer, or cannot start a harness.
        """
        self._url = payload.endpoint.url
        self._worker_id = worker_id
        self._channel = grpc.insecure_channel(self._url)
        self._pool = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(self._channel)
        try:
            answer = self._pool.StartWorker(
                beam_fn_api_pb2.StartWorkerRequest(
                    worker_id=worker_id,
                    control_endpoint=provision.control_endpoint,
                    logging_endpoint=provision.logging_endpoint,
                    artifact_endpoint=provision.artifact_endpoint,
                    provision_endpoint=provision.control_endpoint,
                    params=payload.params,
                ),
                timeout=timeout_s,
                wait_for_ready=True,
            )
        except grpc.RpcError as error:
            self._channel.close()
            raise EnvironmentStartError(
                f"no worker pool answers at {self._url} (--environment_config) from this executor: "
                f"{error.code().name}: {error.details()}"
            ) from error
        if answer.error:
            self._channel.close()
            raise EnvironmentStartError(
                f"the worker pool at {self._url} did not start a harness", answer.error
            )

    exit_code: int | None = None  # the pool does not report it
    tail = ""
    subject = "the SDK harness"

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return False: a pool does not report the end of a harness."""
        return False

    def stop(self) -> None:
        """Have the pool stop the harness."""
        try:
            self._pool.StopWorker(
                beam_fn_api_pb2.StopWorkerRequest(worker_id=self._worker_id),
                timeout=_STOP_TIMEOUT_S,
            )
        except grpc.RpcError as error:
            # The harness exits anyway when its streams end.
            _LOGGER.debug("the worker pool at %s did not answer: %s", self._url, error.code())
        self._channel.close()
