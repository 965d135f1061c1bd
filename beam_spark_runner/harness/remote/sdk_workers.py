"""The SDK harnesses of this Spark worker: started when a stage needs one, kept, and ended.

A Spark worker runs one task at a time, so one harness of each environment serves
all tasks of a job that run in it, one after the other, and all stages of a task at once.
"""

import logging
import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from apache_beam.portability.api import (
    beam_provision_api_pb2,
    beam_runner_api_pb2,
    endpoints_pb2,
)
from google.protobuf import json_format, struct_pb2

from beam_spark_runner.backchannel.log_lines import STDERR, LogSink
from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import (
    EnvironmentStartError,
    FnApiProtocolError,
    HarnessStreamError,
    InvariantError,
    LostHarnessError,
    RunnerError,
    SdkDisconnectedError,
)
from beam_spark_runner.harness.environments.external import PooledHarness
from beam_spark_runner.harness.environments.packages import Archive, StagedFiles, stage_files
from beam_spark_runner.harness.environments.process import runs_our_steps, start_process
from beam_spark_runner.harness.fn_api.connection import SdkConnection
from beam_spark_runner.harness.fn_api.server import FnApiServer
from beam_spark_runner.harness.working_folder import working_folder
from beam_spark_runner.portable.artifacts import artifacts_of, to_proto

_LOGGER = logging.getLogger(__name__)

MOST_IDLE_S = 30.0
"""Without --environment_cache_millis, how long a harness waits for its next task."""
MOST_OF_OTHER_JOBS = 4
"""How many harnesses wait for others than the job whose task runs."""
_LAST_WORDS_S = 1.0  # between the end of a harness's streams and that of its process
_TEARDOWN_S = 10.0  # for DoFns to be torn down when their harness is to end


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessSettings:
    """What a job says of all its SDK harnesses. Travels to executors."""

    job_id: str
    options_json: str = "{}"  # pipeline options, by name
    start_timeout_s: float = 120.0
    cache_s: float = 0.0  # --environment_cache_millis. 0: for this job only
    archives: Mapping[str, Archive] = field(default_factory=dict)  # of staged files, by digest
    parallelism: int = 1  # --sdk_worker_parallelism: harnesses over which stages are spread
    stuck_s: float = 0.0  # --stuck_bundle_timeout; 0: none


class _Harness(Protocol):
    """What runs an SDK harness."""

    exit_code: int | None

    @property
    def tail(self) -> str: ...
    def wait(self, timeout_s: float | None = None) -> bool: ...
    def stop(self) -> None: ...


class SdkWorker:
    """One SDK harness, connected.

    Threads: any.
    """

    def __init__(
        self,
        server: FnApiServer,
        environment: beam_runner_api_pb2.Environment,
        options_json: str,
        staged: StagedFiles | None = None,
    ) -> None:
        self._server = server
        self._environment = environment
        self._staged = staged
        endpoint = endpoints_pb2.ApiServiceDescriptor(url=server.url)
        options = struct_pb2.Struct()
        json_format.Parse(options_json, options)
        self.connection = SdkConnection(
            f"spark-{os.getpid()}",
            beam_provision_api_pb2.ProvisionInfo(
                pipeline_options=options,
                control_endpoint=endpoint,
                logging_endpoint=endpoint,
                artifact_endpoint=endpoint,
                status_endpoint=endpoint,
                dependencies=map(to_proto, staged.artifacts) if staged else (),
            ),
        )
        self._harness: _Harness | None = None
        self.url = server.url
        self.start_timeout_s = 0.0

    def start(self, timeout_s: float) -> None:
        """Start the harness and wait until it has connected.

        Raises:
            EnvironmentStartError: it did not, and what it said.
        """
        self.start_timeout_s = timeout_s
        deadline = time.monotonic() + timeout_s
        self._server.add(self.connection)
        try:
            self._harness = harness = self._launch(timeout_s)
            while not self.connection.control.connected.wait(0.05):
                if harness.exit_code is not None or self.connection.error is not None:
                    harness.wait(_LAST_WORDS_S)
                    raise EnvironmentStartError(
                        f"the SDK harness ended{_with(harness.exit_code)} before it connected",
                        harness.tail,
                    )
                if time.monotonic() > deadline:
                    raise EnvironmentStartError(
                        f"the SDK harness did not connect within {timeout_s:g} s "
                        "(--environment_start_timeout)",
                        harness.tail,
                    )
        except BaseException:
            self.stop()
            raise

    def _launch(self, timeout_s: float) -> _Harness:
        connection, environment, staged = self.connection, self._environment, self._staged
        if environment.urn == urns.ENVIRONMENT_PROCESS:
            return start_process(
                beam_runner_api_pb2.ProcessPayload.FromString(environment.payload),
                connection.worker_id,
                connection.provision,
                lambda: connection.lose(SdkDisconnectedError("the SDK harness ended")),
                staged=staged.variables() if staged else {},
                python=staged.python if staged else None,
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
        """Add to a bundle's error which steps it hits, and what is known of the process.

        Args:
            error: of the bundle.
            stage: the steps of that bundle.
        """
        if isinstance(error, FnApiProtocolError | HarnessStreamError):
            explained = type(error)(f"{stage}: {error}")
            explained.__cause__ = error.__cause__
            return explained
        harness = self._harness
        if harness is None or not isinstance(error, LostHarnessError):
            return error
        if isinstance(error, EnvironmentStartError):
            return EnvironmentStartError(f"{stage}: {error.problem}", harness.tail)
        # Any of those that it had in hand may have ended it.
        stages = ", ".join(self.connection.running)
        if harness.wait(_LAST_WORDS_S):
            return SdkDisconnectedError(
                f"{stages}: the SDK harness ended{_with(harness.exit_code)} while a bundle ran",
                harness.tail,
            )
        return SdkDisconnectedError(f"{stages}: {error.problem}", harness.tail)

    def stop(self, *, orderly: bool = False) -> _Harness | None:
        """End the harness. ``orderly``: it may tear its DoFns down first.

        Returns:
            It, for whoever wants to wait for its end.
        """
        self._server.remove(self.connection)
        harness, self._harness = self._harness, None
        if harness is None:
            return None
        if not orderly:
            harness.stop()
            return harness

        def stop_later() -> None:
            deadline = time.monotonic() + _TEARDOWN_S
            harness.wait(_TEARDOWN_S)
            if harness.exit_code is None:  # a pool does not report the end, and kills at once
                time.sleep(max(0.0, deadline - time.monotonic()))
            harness.stop()

        threading.Thread(target=stop_later, name="beam-harness-end", daemon=True).start()
        return harness


def _with(exit_code: int | None) -> str:
    if exit_code is None:
        return ""
    return f" with signal {exit_code - 128}" if exit_code > 128 else f" with status {exit_code}"


class SdkWorkers:
    """All SDK harnesses of this process, and the port that they connect to.

    Threads: any. Harnesses start without holding up those who want another, or give one back;
    they expire in a thread of their own.
    """

    def __init__(self) -> None:
        self._server: FnApiServer | None = None
        self._kept: dict[_Key, _Kept] = {}
        self._starting: dict[_Key, threading.Lock] = {}
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._expires = False

    def acquire(
        self,
        coded_environment: bytes,
        settings: HarnessSettings,
        stage_id: int = 0,
        log_sink: LogSink = STDERR,
    ) -> SdkWorker:
        """Return the harness of an environment for one bundle; ``release`` gives it back.

        Args:
            coded_environment: Environment proto.
            settings: of the job.
            stage_id: a stage always gets the same of several harnesses.
            log_sink: takes what the harness logs, until another job uses it.

        Raises:
            EnvironmentStartError: it cannot be had.
        """
        number = stage_id % settings.parallelism
        key = _Key(
            coded_environment,
            settings.options_json,
            working_folder() or "",
            number,
            job_id="" if settings.cache_s else settings.job_id,
        )
        with self._lock:
            self._drop(
                each
                for each, kept in self._kept.items()
                if kept.worker.connection.error is not None
            )
            starting = self._starting.setdefault(key, threading.Lock())
        with starting:
            with self._lock:
                if key in self._kept:
                    return self._use(key, settings, log_sink)
                self._drop(self._too_many(settings.job_id))
                if self._server is None:
                    self._server = FnApiServer()
                server = self._server
            worker = self._start(server, coded_environment, settings, log_sink)
            with self._lock:
                if server is not self._server:
                    worker.stop()
                    raise EnvironmentStartError("all SDK harnesses here are being stopped")
                self._kept[key] = _Kept(worker, settings)
                return self._use(key, settings, log_sink)

    def _use(self, key: "_Key", settings: HarnessSettings, log_sink: LogSink) -> SdkWorker:
        """Count a user. The lock is held."""
        kept = self._kept[key]
        if kept.settings.job_id != settings.job_id:
            kept.worker.connection.forget_stages()
        kept.settings = settings
        kept.worker.connection.logs.sink = log_sink
        kept.users += 1
        if not self._expires:
            self._expires = True
            threading.Thread(target=self._expire, name="beam-harness-idle", daemon=True).start()
        return kept.worker

    def release(self, worker: SdkWorker, *, kill: bool = False) -> None:
        """Give back what ``acquire`` returned. ``kill``: its code must not run on."""
        with self._lock:
            for key, kept in self._kept.items():
                if kept.worker is worker:
                    kept.users -= 1
                    kept.idle_since = time.monotonic()
                    if kill:
                        del self._kept[key]
                        worker.stop()
                    self._wake.notify_all()
                    return

    def end_job(self, job_id: str) -> None:
        """End those that only wait for a next task of a job, and wait while they tear DoFns down.

        Not those that ``--environment_cache_millis`` keeps for other jobs. A worker pool does not
        say when its harness has ended: it is not waited for.
        """
        with self._lock:
            ending = [
                self._kept.pop(key).worker.stop(orderly=True)
                for key, kept in list(self._kept.items())
                if kept.settings.job_id == job_id and not kept.users and not kept.settings.cache_s
            ]
            self._wake.notify_all()
        deadline = time.monotonic() + _TEARDOWN_S
        for harness in ending:
            if harness is not None:
                harness.wait(max(0.0, deadline - time.monotonic()))

    def stop(self) -> None:
        """End all of them, and close the port."""
        with self._lock:
            for kept in self._kept.values():
                kept.worker.stop()
            self._kept.clear()
            if self._server is not None:
                self._server.stop()
                self._server = None

    @staticmethod
    def _start(
        server: FnApiServer, coded_environment: bytes, settings: HarnessSettings, log_sink: LogSink
    ) -> SdkWorker:
        environment = beam_runner_api_pb2.Environment.FromString(coded_environment)
        artifacts = artifacts_of(environment)
        # A command of the user's gets the files' names, and does with them what it likes.
        staged = (
            stage_files(artifacts, settings.archives, installs=runs_our_steps(environment))
            if artifacts
            else None
        )
        worker = SdkWorker(server, environment, settings.options_json, staged)
        worker.connection.logs.sink = log_sink
        worker.start(settings.start_timeout_s)
        return worker

    def _too_many(self, job_id: str) -> "list[_Key]":
        """List what other jobs have left beyond the limit, unused for longest. The lock is held."""
        idle = [
            key
            for key, kept in self._kept.items()
            if kept.settings.job_id != job_id and not kept.users
        ]
        idle.sort(key=lambda key: self._kept[key].idle_since, reverse=True)
        return idle[MOST_OF_OTHER_JOBS:]

    def _drop(self, keys: "Iterable[_Key]") -> None:
        for key in list(keys):
            self._kept.pop(key).worker.stop(orderly=True)

    def _expire(self) -> None:
        with self._lock:
            while self._kept:
                now = time.monotonic()
                due = {
                    key: kept.idle_since + (kept.settings.cache_s or MOST_IDLE_S)
                    for key, kept in self._kept.items()
                    if not kept.users
                }
                self._drop([key for key, at in due.items() if at <= now])
                later = [at - now for at in due.values() if at > now]
                self._wake.wait(min(later) if later else None)
            self._expires = False


class _Key(NamedTuple):
    """Bundles that have this in common may share a harness."""

    coded_environment: bytes
    options_json: str
    folder: str  # in which it was started, so that relative paths mean what is there
    number: int  # of several
    job_id: str  # empty: it may serve one job after another


class _Kept:
    """A harness, who uses it, and since when nobody does."""

    def __init__(self, worker: SdkWorker, settings: HarnessSettings) -> None:
        self.worker = worker
        self.settings = settings  # of the job that used it last
        self.users = 0
        self.idle_since = time.monotonic()


sdk_workers = SdkWorkers()
"""This process's."""
