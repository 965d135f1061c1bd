"""Savepoints that a running stream makes of itself, by ``--savepoint_every``."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from beam_spark_runner.core.rendering import message_of
from beam_spark_runner.driving.run_context import RunSettings
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.job.files.savepoint_folder import SavepointFolder
from beam_spark_runner.job.files.shard_places import existing_storage
from beam_spark_runner.job.watching.messages import JobMessages
from beam_spark_runner.job.watching.stream_watch import StreamWatch
from beam_spark_runner.observing.epoch_status import EpochStatus
from beam_spark_runner.observing.made_savepoints import MadeSavepoint
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.options.savepoint_schedule import SavepointSchedule
from beam_spark_runner.storage.urls import is_url

_TRIES_AGAIN_AFTER_S = 60.0


class ScheduledSavepoints:
    """Makes a savepoint after an epoch if one is due, in another thread, one at a time.

    Without a new epoch, there is nothing to save. A savepoint that fails is warned of, and tried
    again after a minute; the stream continues.

    Threads: one calls ``note_epoch``.

    Args:
        schedule: When they are made.
        places: Where the stream commits its epochs.
        begun_from: ``--savepoint_path``, which is never removed.
        messages: Tell of savepoints.
        now_s: Returns the Unix time.
        note: Is called with each savepoint, also with those of earlier starts.
        forget: Is called with the paths of savepoints that were removed.
        start: Runs a function in another thread, which does not keep the process.
    """

    def __init__(
        self,
        schedule: SavepointSchedule,
        places: ShardLocations,
        begun_from: str | None,
        messages: JobMessages,
        now_s: Callable[[], float] = time.time,
        start: Callable[[Callable[[], None]], object] | None = None,
        note: Callable[[MadeSavepoint], None] = lambda made: None,
        forget: Callable[[Sequence[str]], None] = lambda paths: None,
    ) -> None:
        self._schedule, self._places = schedule, places
        self._begun_from = () if begun_from is None else (_absolute(begun_from),)
        self._messages, self._now_s = messages, now_s
        self._note, self._forget = note, forget
        self._start = start or _start_thread
        self._folder = SavepointFolder(_absolute(schedule.folder), places.store)
        self._due_s: float | None = None  # None: not known yet
        self._is_busy = threading.Event()

    def note_epoch(self) -> None:
        """Note that an epoch is committed."""
        if self._is_busy.is_set() or (self._due_s is not None and self._now_s() < self._due_s):
            return
        self._is_busy.set()
        self._start(self._save)

    def _save(self) -> None:
        try:
            self._save_if_due()
        except Exception as error:  # the stream does not depend on it
            self._due_s = self._now_s() + min(_TRIES_AGAIN_AFTER_S, self._schedule.every_s)
            self._messages.warn(
                f"a savepoint by --savepoint_every was not made: {message_of(error)}"
            )
        finally:
            self._is_busy.clear()

    def _save_if_due(self) -> None:
        now_s, every_s = self._now_s(), self._schedule.every_s
        if self._due_s is None:  # an earlier start may have made the last one
            earlier = self._folder.complete()
            self._due_s = every_s + (earlier[-1].at_s if earlier else now_s)
            for made in earlier:
                self._note(made)
            if now_s < self._due_s:
                return
        places = self._places
        source = existing_storage(places.deltas, "checkpoint_dir", places.store)
        savepoint = self._folder.make(source, now_s)
        self._due_s = now_s + every_s
        self._note(MadeSavepoint(*savepoint, self._now_s()))
        self._messages.inform(f"savepoint of epoch {savepoint.epoch:,} in {savepoint.path}")
        self._forget(self._folder.retain(self._schedule.keep, self._begun_from, now_s))


def with_savepoints(
    settings: RunSettings,
    config: RunnerConfig,
    places: ShardLocations,
    messages: JobMessages,
    watch: StreamWatch,
) -> RunSettings:
    """Return how a stream runs that makes savepoints of itself, if options say so.

    Args:
        settings: How it runs.
        config: Its options.
        places: Where it commits its epochs.
        messages: Tell of savepoints.
        watch: Remembers them.
    """
    schedule = config.savepoint_schedule
    if schedule is None:
        return settings
    savepoints = ScheduledSavepoints(
        schedule,
        places,
        config.savepoint_path,
        messages,
        note=watch.note_savepoint,
        forget=watch.forget_savepoints,
    )

    def on_epoch(status: EpochStatus) -> None:
        settings.on_epoch(status)
        savepoints.note_epoch()

    return replace(settings, on_epoch=on_epoch)


def _absolute(folder: str) -> str:
    return folder if is_url(folder) else str(Path(folder).absolute())


def _start_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="beam-savepoint", daemon=True).start()
