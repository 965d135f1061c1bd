"""Exchanges of rows in a test's own process."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from beam_spark_runner.engine.rows.row_memory import BlockFile, RowMemory
from beam_spark_runner.engine.task.local_exchange import Exchange

ENOUGH = 1 << 30


def memory_of(share_bytes: int = ENOUGH, folder: Path | None = None) -> RowMemory:
    return RowMemory(share_bytes, lambda: BlockFile(folder))


def exchanged(
    program: Any, outputs: Iterable[Iterable[pa.RecordBatch]], memory: RowMemory | None = None
) -> list[list[pa.RecordBatch]]:
    """Return what each task of a level reads of that which the tasks before have emitted."""
    exchange = Exchange.before_level(program, memory or memory_of())
    for emitted in outputs:
        exchange.add(emitted)
    return [list(each) for each in exchange.finish()]
