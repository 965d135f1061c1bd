"""Moments of a migration at which a process dies.

A module that workers import by its name.
"""

import enum
import functools
import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pyarrow as pa

from beam_spark_runner.engine.task.shard_copying import Resharding
from beam_spark_runner.spark.driver import cluster
from beam_spark_runner.spark.worker import level_tasks
from integration.stream_kills import Sealing, meet_when_storing
from integration.strikes import DRIVER_PID, claim, kill


class Moving(enum.Enum):
    """What a task has come to that makes new shards."""

    MADE = "it has made a shard, and others may not be made"


IN_MIGRATIONS: tuple[enum.Enum, ...] = (Sealing.STORING, Sealing.STORED, *Moving)
"""In this order."""


def driver_dies_at(moment: enum.Enum, marker: str) -> None:
    """Have this process, a driver, die when the first task of a migration comes to a moment.

    Args:
        moment: one of ``IN_MIGRATIONS``.
        marker: a path; where the file exists, the deed is done.
    """

    def striking(resharding: Resharding) -> Any:
        return functools.partial(_make_shards, moment, marker, resharding)

    mock.patch.object(cluster, "resharding_function", striking).start()


def _make_shards(
    moment: enum.Enum, marker: str, resharding: Resharding, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    def meet(here: enum.Enum) -> None:
        if here is moment and claim(marker):
            kill(int(os.environ[DRIVER_PID]))

    meet_when_storing(meet)
    for made in level_tasks.make_shards(resharding, batches):
        meet(Moving.MADE)
        yield made
