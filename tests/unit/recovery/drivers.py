"""Drivers of a pipeline with one shard, and storage in memory."""

import dataclasses
from typing import BinaryIO

from beam_spark_runner.plan.compatibility import StoredStage
from beam_spark_runner.recovery.copies import Namespaces
from beam_spark_runner.recovery.driver_start import Checkpoints, DriverStart
from beam_spark_runner.recovery.heads import DeltaId, Head
from beam_spark_runner.recovery.migration import PipelineVersion
from beam_spark_runner.recovery.savepoint_copy import Savepoint
from beam_spark_runner.recovery.sweep import delta_name
from tests.unit.recovery.files import Files

PLACE = StoredStage(
    stage=1, level=0, is_exchanged=True, dest=2, is_fed=False, transform="ref_1", kept="state n"
)
VERSION = PipelineVersion(
    plan={"step Count": PLACE}, steps={"ref_1": "Count"}, tables=frozenset({"Write"})
)


def unchecked(name: str, content: BinaryIO) -> None:
    """Take a file for whole."""


def start(
    files: Files,
    restart: str = "auto",
    partitions: int = 1,
    *,
    tasks_sync: bool = True,
    savepoint: Files | None = None,
    namespaces: Namespaces | None = None,
    owner: bytes = b"",
    chain: str = "",
) -> DriverStart:
    """Start a driver of a pipeline with one step."""
    checkpoints = Checkpoints(
        storage=files,
        lineage="main",
        restart=restart,
        key_groups=128,
        tasks_sync=tasks_sync,
        namespaces=namespaces,
        owner=owner,
        new_chain=chain,
        savepoint=lambda: Savepoint(unchecked, savepoint, files) if savepoint is not None else None,
    )
    return DriverStart(checkpoints, VERSION, partitions)


def commit(driver: DriverStart, files: Files) -> None:
    """Commit an epoch in which the only shard is written whole."""
    last = driver.manifest
    epoch = last.epoch + 1
    files.files[delta_name("main", 0, 0, epoch, 7)] = b""
    heads = {(0, 0): Head(DeltaId(epoch, 7))}
    driver.commit(dataclasses.replace(last, epoch=epoch, parent=last.epoch, heads=heads))
