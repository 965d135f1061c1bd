"""Has tasks leave reads of declarative steps for the next epoch; executors import it."""

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from beam_spark_runner.engine.stages import opening
from beam_spark_runner.harness.beam.declarative import DeclarativeParDo

_folders: set[str] = set()
_restore = DeclarativeParDo.restore


def leave_reads(folder: str) -> None:
    """Have all tasks of this process leave reads once they have made one, from now on.

    Args:
        folder: gets a file for each task that continues such reads.
    """
    if not _folders:
        mock.patch.object(
            opening, "_leaves_after_us", lambda context: None if context.task.epoch.drains else 0
        ).start()
        mock.patch.object(DeclarativeParDo, "restore", _restored).start()
    _folders.add(folder)


def _restored(step: DeclarativeParDo, records: Sequence[bytes]) -> None:
    for folder in _folders:
        Path(folder, f"{os.getpid()}-{uuid.uuid4().hex}").write_text(f"{len(records)}")
    _restore(step, records)


def continued(folder: Path) -> int:
    """Return how many records were continued, those of tasks that were repeated among them."""
    return sum(int(each.read_text() or "0") for each in folder.iterdir())
