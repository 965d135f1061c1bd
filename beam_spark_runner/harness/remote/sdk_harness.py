"""One SDK harness of this Python worker, connected over the Fn API."""

import os
import threading
import time
from typing import Protocol

from apache_beam.portability.api import (
    beam_provision_api_pb2,
    beam_runner_api_pb2,
    endpoints_pb2,
)

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import (
    BundleFailedError,
    EnvironmentStartError,
    FnApiProtocolError,
    HarnessStreamError,
    InvariantError,
    LostHarnessError,
    RunnerError,
    SdkDisconnectedError,
)
from beam_spark_runner.harness.environments.docker import start_container
from beam_spark_runner.harness.environments.external import PooledHarness
from beam_spark_runner.harness.environments.image_version import beam_version
from beam_spark_runner.harness.environments.installed_packages import StagedFiles
from beam_spark_runner.harness.environments.last_lines import LastLines
from beam_spark_runner.harness.environments.process import start_process
from beam_spark_runner.harness.fn_api.connection import SdkConnection
from beam_spark_runner.harness.fn_api.fn_api_server import FnApiServer
from beam_spark_runner.harness.remote.sdk_metrics import HarnessMetrics
from beam_spark_runner.harness.remote.settings import HarnessSettings
from beam_spark_runner.portable.artifacts import to_proto
from beam_spark_runner.portable.environment_facts import python_version_of_beam, sdk_of
from beam_spark_runner.portable.sdk_options import options_for

_LAST_WORDS_S = 1.0  # between the end of a harness's streams and that of its process
TEARDOWN_S = 10.0
"""The time for DoFns to be torn down before their harness is ended."""


class _Harness(Protocol):
    """The process, container or pool that runs an SDK harness."""

    exit_code: int | None

    @property
    def subject(self) -> str: ...
    @property
    def tail(self) -> str: ...
    def wait(self, timeout_s: float | None = None) -> bool: ...
    def stop(self) -> None: ...


class ConnectedHarness:
    """One SDK harness with its connection.

    Threads: any.

    Attributes:
        answers_finalization: Whether it has answered all requests to finalize bundles in time.
    """

    def __init__(
        self,
        server: FnApiServer,
        environment: beam_runner_api_pb2.Environment,
        settings: HarnessSettings,
        staged: StagedFiles | None = None,
    ) -> None:
        self._server = server
        self._environment = environment
        self._settings = settings
        self._staged = staged
        endpoint = endpoints_pb2.ApiServiceDescriptor(url=server.url)
        self.connection = SdkConnection(
            f"spark-{os.getpid()}",
            beam_provision_api_pb2.ProvisionInfo(
                pipeline_options=options_for(environment, settings.options_json),
                control_endpoint=endpoint,
                logging_endpoint=endpoint,
                artifact_endpoint=endpoint,
                status_endpoint=endpoint,
                dependencies=map(to_proto, staged.artifacts) if staged else (),
            ),
        )
        self._logged = LastLines()
        """The lines of a container's boot program, which logs the output of its SDK harness."""
        self.connection.logs.keep = self._logged.stream().add
        self._harness: _Harness | None = None
        self.answers_finalization = True
        self.url = server.url
        self.sdk = sdk_of(environment)
        self.metrics = HarnessMetrics(self.sdk)
        self.start_timeout_s = 0.0

    @property
    def subject(self) -> str:
        """The harness, as the subject of a sentence."""
        return "the SDK harness" if self._harness is None else self._harness.subject

    def start(self, timeout_s: float) -> None:
        """Start the harness and wait until it has connected.

        Raises:
            EnvironmentStartError: The harness did not connect; with its last lines.
        """
        self.start_timeout_s = timeout_s
        deadline = time.monotonic() + timeout_s
        self._server.add(self.connection)
        try:
            self._harness = harness = self._launch(timeout_s)
            if self._environment.urn == urns.ENVIRONMENT_DOCKER:  # its image may have been pulled
                deadline = time.monotonic() + timeout_s
            while not self.connection.control.connected.wait(0.05):
                if harness.exit_code is not None or self.connection.error is not None:
                    harness.wait(_LAST_WORDS_S)
                    raise EnvironmentStartError(
                        f"{harness.subject} ended{_with(harness.exit_code)} before it connected"
                        f"{self._other_version()}",
                        self._last_lines(harness),
                    )
                if time.monotonic() > deadline:
                    raise EnvironmentStartError(
                        f"{harness.subject} did not connect within {timeout_s:g} s "
                        f"(--environment_start_timeout){self._other_version()}",
                        self._last_lines(harness),
                    )
        except BaseException:
            self.stop()
            raise

    def _launch(self, timeout_s: float) -> _Harness:
        connection, environment, staged = self.connection, self._environment, self._staged

        def on_exit() -> None:
            connection.lose(SdkDisconnectedError("the SDK harness ended"))

        if environment.urn == urns.ENVIRONMENT_PROCESS:
            return start_process(
                beam_runner_api_pb2.ProcessPayload.FromString(environment.payload),
                connection.worker_id,
                connection.provision,
                on_exit,
                staged=staged.variables() if staged else {},
                python=staged.python if staged else None,
                main_classes=self._settings.main_classes,
                import_path=self._settings.import_path,
            )
        if environment.urn == urns.ENVIRONMENT_DOCKER:
            return start_container(
                beam_runner_api_pb2.DockerPayload.FromString(environment.payload),
                connection.worker_id,
                connection.provision,
                on_exit,
                job_id=self._settings.job_id,
                executable=self._settings.docker_executable,
            )
        if environment.urn == urns.ENVIRONMENT_EXTERNAL:
            return PooledHarness(
                beam_runner_api_pb2.ExternalPayload.FromString(environment.payload),
                connection.worker_id,
                connection.provision,
                timeout_s,
            )
        raise InvariantError(f"an environment of kind {environment.urn} has no harness")

    def explain(self, error: RunnerError, stage: str) -> RunnerError:
        """Add to a bundle's error the stage, the SDK, and the state and last lines of the harness.

        Args:
            error: The error of the bundle.
            stage: The name of the bundle's stage.
        """
        if isinstance(error, FnApiProtocolError | HarnessStreamError):
            explained = type(error)(f"{stage}: {error} (SDK {self.sdk})")
            explained.__cause__ = error.__cause__
            return explained
        if isinstance(error, BundleFailedError) and (other := self._other_version()):
            return BundleFailedError(
                error.step, f"{error.cause}{other}", error.traceback_text, error.raised
            )
        harness = self._harness
        if harness is None or not isinstance(error, LostHarnessError):
            return error
        if isinstance(error, EnvironmentStartError):
            return EnvironmentStartError(f"{stage}: {error.problem}", self._last_lines(harness))
        # Any of the running stages may have ended the harness.
        stages = ", ".join(self.connection.running_stages)
        if harness.wait(_LAST_WORDS_S):
            return SdkDisconnectedError(
                f"{stages}: {harness.subject} ended{_with(harness.exit_code)} while a bundle ran"
                f"{self._other_version()}",
                self._last_lines(harness),
            )
        return SdkDisconnectedError(f"{stages}: {error.problem}", self._last_lines(harness))

    def _other_version(self) -> str:
        """Return a text if a container has another version of Beam than the pipeline, else ""."""
        built_with = python_version_of_beam(self._environment)
        if self._environment.urn != urns.ENVIRONMENT_DOCKER or built_with is None:
            return ""
        payload = beam_runner_api_pb2.DockerPayload.FromString(self._environment.payload)
        image = payload.container_image
        version = beam_version(self._settings.docker_executable, image)
        if version in (None, built_with):
            return ""
        return (
            f" (the container image {image} has Apache Beam {version}, but the pipeline was built "
            f"with {built_with}: use an image of that version)"
        )

    def _last_lines(self, harness: _Harness) -> str:
        return "\n".join(filter(None, (harness.tail, self._logged.text)))

    def stop(self, *, orderly: bool = False) -> _Harness | None:
        """End the harness. ``orderly``: it may tear its DoFns down first.

        Returns:
            The process, container or pool, for callers that ``wait``; None: none was started.
        """
        self._server.remove(self.connection)
        if self._staged is not None:
            self._staged.release()  # the files still exist for ``leases.KEPT_S``
        harness, self._harness = self._harness, None
        if harness is None:
            return None
        if not orderly:
            harness.stop()
            return harness

        def stop_later() -> None:
            deadline = time.monotonic() + TEARDOWN_S
            harness.wait(TEARDOWN_S)
            if harness.exit_code is None:  # a pool does not report the end, and kills at once
                time.sleep(max(0.0, deadline - time.monotonic()))
            harness.stop()

        threading.Thread(target=stop_later, name="beam-harness-end", daemon=True).start()
        return harness


def _with(exit_code: int | None) -> str:
    if exit_code is None:
        return ""
    return f" with signal {exit_code - 128}" if exit_code > 128 else f" with status {exit_code}"
