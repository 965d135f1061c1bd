"""Runs all tasks of some levels one after another, in one process."""

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence

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
    first = programs[0]
    inputs = [list(rows)] * (first.partitions if first.has_exchange else 1)
    return [batch for emitted in run_levels(programs, inputs, most_bytes) for batch in emitted]


def run_levels(
    programs: Sequence[LevelProgram],
    inputs: Sequence[Sequence[pa.RecordBatch]],
    most_bytes: float = math.inf,
    before_task: Callable[[], None] = lambda: None,
) -> list[list[pa.RecordBatch]]:
    """Run the tasks of all levels, and return what each task of the last one emits.

    Args:
        programs: the programs of the levels.
        inputs: the rows that each task of the first level reads.
        most_bytes: see ``run_chained``.
        before_task: is called before each task, and may raise.

    Raises:
        TooManyRowsError: a level emits more.
    """
    first, *later = programs
    outputs = _run_level(first, inputs, most_bytes, before_task)
    for program in later:
        read = exchanged(program, outputs) if program.has_exchange else outputs
        outputs = _run_level(program, read, most_bytes, before_task)
    return outputs


def _run_level(
    program: LevelProgram,
    inputs: Sequence[Sequence[pa.RecordBatch]],
    most_bytes: float,
    before_task: Callable[[], None],
) -> list[list[pa.RecordBatch]]:
    """Return what each task of a level emits."""
    size = 0
    outputs: list[list[pa.RecordBatch]] = []
    for partition, batches in enumerate(inputs):
        before_task()
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
    batches = (batch for emitted in outputs for batch in emitted)
    is_sorted = program.reads_marks_first or any(
        stage.input.is_grouped or stage.input.is_ordered for stage in program.stages
    )
    rows = sorted_rows(program, batches) if is_sorted else joined(batches)
    if program.partitions == 1:
        return [rows.to_batches()]
    routes = rows.column("route").to_numpy()
    partitions = routing.partitions_of_routes(routes, program.partitions)
    return [
        rows.take(pa.array(np.flatnonzero(partitions == partition))).combine_chunks().to_batches()
        for partition in range(program.partitions)
    ]


def joined(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return the rows of all batches, in their order."""
    return pa.Table.from_batches(map(schema.conformed, batches), schema.ARROW_SCHEMA)


def sorted_rows(program: LevelProgram, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return the rows of all partitions of a level, sorted as those of each one are."""
    rows = joined(batches)
    is_ordered = any(stage.input.is_ordered for stage in program.stages)
    return rows.sort_by(_SORTED_BY_ROUTE_AND_ORDER if is_ordered else _SORTED_BY_ROUTE)
