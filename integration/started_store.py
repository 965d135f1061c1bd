"""Starts the stores of ``checkpoint_store`` by their names."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from integration.azure_store import start_azure_store
from integration.checkpoint_store import CheckpointStore, environment_of
from integration.hdfs_server import start_hdfs
from integration.object_store import start_object_store


@contextlib.contextmanager
def start_store(kind: Literal["S3", "Azure", "HDFS"], folder: Path) -> Iterator[CheckpointStore]:
    """Start a store; this process, too, has what its clients need.

    Args:
        kind: which one.
        folder: for its files; empty.
    """
    with contextlib.ExitStack() as stack:
        running: CheckpointStore
        if kind == "S3":
            running = stack.enter_context(start_object_store(folder / "log"))
        elif kind == "Azure":
            running = stack.enter_context(start_azure_store(folder))
        else:
            running = stack.enter_context(start_hdfs(folder))
        stack.enter_context(environment_of(running))
        yield running
