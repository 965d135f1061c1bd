"""The SDK harnesses of this Python worker: started on demand, reused, and ended when idle.

A Python worker runs one task at a time. So one harness of each environment serves
all tasks of a job in it, one after another, and all stages of a task at once.
"""

import threading
import time
import weakref
from collections.abc import Iterable
from typing import NamedTuple

from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.backchannel.log_lines import STDERR, LogSink
from beam_spark_runner.core.errors import EnvironmentStartError
from beam_spark_runner.harness.environments.installed_packages import stage_files
from beam_spark_runner.harness.fn_api.fn_api_server import FnApiServer
from beam_spark_runner.harness.main_classes import to_json
from beam_spark_runner.harness.program_folders import working_folder
from beam_spark_runner.harness.remote.sdk_harness import TEARDOWN_S, ConnectedHarness
from beam_spark_runner.harness.remote.settings import HarnessSettings
from beam_spark_runner.portable.artifacts import artifacts_of
from beam_spark_runner.portable.environment_facts import (
    ends_with_its_siblings,
    has_our_package,
)

MAX_IDLE_S = 30.0
"""How long an idle harness is kept for the next task, without --environment_cache_millis."""
MAX_OF_OTHER_JOBS = 4
"""How many idle harnesses of other jobs are kept when a job starts one."""


class SdkHarnesses:
    """All SDK harnesses of this process, and the port that they connect to.

    Threads: any. A harness that starts does not block calls for others; idle harnesses expire in
    their own thread, except those whose end would end others of their job.
    """

    def __init__(self) -> None:
        self._server: FnApiServer | None = None
        self._entries: dict[_Key, _Entry] = {}
        # Each lock exists while a thread holds it or waits for it.
        self._starting: weakref.WeakValueDictionary[_Key, threading.Lock] = (
            weakref.WeakValueDictionary()
        )
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._expires = False

    def acquire(
        self,
        coded_environment: bytes,
        settings: HarnessSettings,
        stage_id: int = 0,
        log_sink: LogSink = STDERR,
    ) -> ConnectedHarness:
        """Return the harness of an environment for one bundle; ``release`` gives it back.

        Args:
            coded_environment: A serialised Environment proto.
            settings: The job's settings of its harnesses.
            stage_id: The number of the stage, which determines the one of several harnesses.
            log_sink: Takes the log lines of the harness until its next use.

        Raises:
            EnvironmentStartError: The harness cannot be started.
        """
        number = stage_id % settings.parallelism
        key = _Key(
            coded_environment,
            settings.options_json,
            to_json(settings.main_classes),
            working_folder() or "",
            number,
            job_id="" if settings.cache_s else settings.job_id,
        )
        with self._lock:
            self._drop(
                other
                for other, entry in self._entries.items()
                if entry.worker.connection.error is not None
            )
            starting = self._starting.setdefault(key, threading.Lock())
        with starting:
            with self._lock:
                if key in self._entries:
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
                environment = beam_runner_api_pb2.Environment.FromString(coded_environment)
                self._entries[key] = _Entry(
                    worker, settings, has_siblings=ends_with_its_siblings(environment)
                )
                return self._use(key, settings, log_sink)

    def _use(self, key: "_Key", settings: HarnessSettings, log_sink: LogSink) -> ConnectedHarness:
        """Count a user of a harness, and return it. The caller holds the lock."""
        entry = self._entries[key]
        if entry.settings.job_id != settings.job_id:
            entry.worker.connection.forget_stages()
            entry.worker.metrics.forget()
        entry.settings = settings
        entry.worker.connection.logs.sink = log_sink
        entry.users += 1
        if not self._expires:
            self._expires = True
            threading.Thread(target=self._expire, name="beam-harness-idle", daemon=True).start()
        return entry.worker

    def release(self, worker: ConnectedHarness, *, kill: bool = False) -> None:
        """End one use of a harness. ``kill``: end it at once, because its user code must stop."""
        with self._lock:
            for key, entry in self._entries.items():
                if entry.worker is worker:
                    entry.users -= 1
                    entry.idle_since = time.monotonic()
                    if kill:
                        del self._entries[key]
                        worker.stop()
                    self._wake.notify_all()
                    return

    def must_stay(self, job_id: str | None = None) -> bool:
        """Whether this process must stay, since its end would end harnesses of other processes.

        Args:
            job_id: Only harnesses of this job matter; None: those of all jobs.
        """
        with self._lock:
            return any(
                entry.stays and entry.worker.connection.error is None
                for entry in self._entries.values()
                if job_id in (None, entry.settings.job_id)
            )

    def end_job(self, job_id: str) -> None:
        """End the idle harnesses of a job, and wait while they tear DoFns down.

        Harnesses that ``--environment_cache_millis`` keeps for other jobs remain. A worker pool
        does not report the end of its harness, so that one is not waited for.
        """
        with self._lock:
            for entry in self._entries.values():
                if entry.settings.job_id == job_id:
                    entry.has_siblings = False
            ending = [
                self._entries.pop(key).worker.stop(orderly=True)
                for key, entry in list(self._entries.items())
                if entry.settings.job_id == job_id
                and not entry.users
                and not entry.settings.cache_s
            ]
            self._wake.notify_all()
        deadline = time.monotonic() + TEARDOWN_S
        for harness in ending:
            if harness is not None:
                harness.wait(max(0.0, deadline - time.monotonic()))

    def stop(self) -> None:
        """End all harnesses, and close the port."""
        with self._lock:
            for entry in self._entries.values():
                entry.worker.stop()
            self._entries.clear()
            if self._server is not None:
                self._server.stop()
                self._server = None

    @staticmethod
    def _start(
        server: FnApiServer, coded_environment: bytes, settings: HarnessSettings, log_sink: LogSink
    ) -> ConnectedHarness:
        environment = beam_runner_api_pb2.Environment.FromString(coded_environment)
        artifacts = artifacts_of(environment)
        # A user's own command gets the files, but installs packages itself if it needs them.
        staged = (
            stage_files(artifacts, settings.archives, installs=has_our_package(environment))
            if artifacts
            else None
        )
        worker = ConnectedHarness(server, environment, settings, staged)
        worker.connection.logs.sink = log_sink
        worker.start(settings.start_timeout_s)
        return worker

    def _too_many(self, job_id: str) -> "list[_Key]":
        """List idle harnesses of other jobs beyond the limit. The caller holds the lock."""
        idle = [
            key
            for key, entry in self._entries.items()
            if entry.settings.job_id != job_id and not entry.users and not entry.stays
        ]
        idle.sort(key=lambda key: self._entries[key].idle_since, reverse=True)
        return idle[MAX_OF_OTHER_JOBS:]

    def _drop(self, keys: "Iterable[_Key]") -> None:
        for key in list(keys):
            self._entries.pop(key).worker.stop(orderly=True)

    def _expire(self) -> None:
        with self._lock:
            try:
                self._expire_until_none_is_kept()
            finally:
                self._expires = False

    def _expire_until_none_is_kept(self) -> None:
        while self._entries:
            now = time.monotonic()
            due = {
                key: entry.idle_since + (entry.settings.cache_s or MAX_IDLE_S)
                for key, entry in self._entries.items()
                if not entry.users and not entry.stays
            }
            self._drop([key for key, at in due.items() if at <= now])
            # Any time, but no longer than a thread can wait.
            later = [min(at - now, threading.TIMEOUT_MAX) for at in due.values() if at > now]
            self._wake.wait(min(later) if later else None)


class _Key(NamedTuple):
    """Identifies a harness: bundles with the same key may share it."""

    coded_environment: bytes
    options_json: str
    main_classes: str  # see ``main_classes.to_json``
    folder: str  # its working directory, on which relative paths depend
    number: int  # among the harnesses of an environment
    job_id: str  # empty: it may serve one job after another


class _Entry:
    """A harness, the number of its users, and the time since which it is idle."""

    def __init__(
        self, worker: ConnectedHarness, settings: HarnessSettings, *, has_siblings: bool = False
    ) -> None:
        self.worker = worker
        self.settings = settings  # of the job that used it last
        self.users = 0
        self.idle_since = time.monotonic()
        self.has_siblings = has_siblings  # which its end would end, while the job runs

    @property
    def stays(self) -> bool:
        """Whether it stays until its job has ended, even if it is idle."""
        return self.has_siblings and not self.settings.cache_s


sdk_harnesses = SdkHarnesses()
"""The harnesses of this process."""
