"""Runs all tasks of an epoch's levels one after another, in one process."""

import contextlib
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from beam_spark_runner.core import routing
from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.task.task import LevelTask

_SORTED_BY_ROUTE = [("route", "ascending")]
_SORTED_BY_ROUTE_AND_ORDER = [*_SORTED_BY_ROUTE, ("order", "ascending")]


class TooManyRowsError(Exception):
    """The rows between two levels do not fit in memory: Spark has to exchange them."""


def run_chained(
    programs: Sequence[LevelProgram],
    rows: Sequence[pa.RecordBatch],
    most_bytes: int,
) -> list[pa.RecordBatch]:
    """Run the tasks of all levels, and return what those of the last one emit.

    Args:
        programs: the programs of the levels.
        rows: the rows that each task of the first level reads.
        most_bytes: how much a level may emit: all of it is in memory.

    Raises:
        TooManyRowsError: a level emits more.
    """
    first, *later = programs
    inputs = [list(rows)] * (first.partitions if first.has_exchange else 1)
    outputs = _run_level(first, inputs, most_bytes)
    for program in later:
        inputs = exchanged(program, outputs) if program.has_exchange else outputs
        outputs = _run_level(program, inputs, most_bytes)
    return [batch for emitted in outputs for batch in emitted]


def _run_level(
    program: LevelProgram,
    inputs: Sequence[Sequence[pa.RecordBatch]],
    most_bytes: int,
) -> list[list[pa.RecordBatch]]:
    """Return what each task of a level emits."""
    size = 0
    outputs: list[list[pa.RecordBatch]] = []
    for partition, batches in enumerate(inputs):
        task = LevelTask(program, partition)
        outputs.append([])
        with contextlib.closing(task.run(iter(batches))) as emitted:
            for batch in emitted:
                size += batch.nbytes
                if size > most_bytes:
                    raise TooManyRowsError
                outputs[-1].append(batch)
    return outputs


def exchanged(
    program: LevelProgram, outputs: Iterable[Iterable[pa.RecordBatch]]
) -> list[list[pa.RecordBatch]]:
    """Return the rows that each task of a level reads, sorted as ``driver.exchange`` has Spark do.

    Rows that Spark leaves in any order come in that in which they were emitted.

    Args:
        program: the program of the level.
        outputs: the rows that the tasks of the level before have emitted.
    """
    rows = sorted_rows(program, (batch for emitted in outputs for batch in emitted))
    return partitioned(rows, program.partitions)


def partitioned(rows: pa.Table, partitions: int) -> list[list[pa.RecordBatch]]:
    """Return the rows of each partition, in their order."""
    if partitions == 1:
        return [rows.to_batches()]
    places = routing.partitions_of_routes(rows.column("route").to_numpy(), partitions)
    return [
        rows.take(pa.array(np.flatnonzero(places == partition))).combine_chunks().to_batches()
        for partition in range(partitions)
    ]


def joined(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return the rows of all batches, in their order."""
    return pa.Table.from_batches(map(schema.conformed, batches), schema.ARROW_SCHEMA)


def sorted_rows(program: LevelProgram, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return the rows of all partitions of a level, sorted as those of each one are."""
    rows = joined(batches)
    is_ordered = any(stage.input.is_ordered for stage in program.stages)
    return rows.sort_by(_SORTED_BY_ROUTE_AND_ORDER if is_ordered else _SORTED_BY_ROUTE)
