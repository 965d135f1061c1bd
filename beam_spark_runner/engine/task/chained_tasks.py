"""Runs all tasks of some levels one after another, in one process."""

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
from typing_extensions import override

from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.rows.row_memory import Block, BlockFile, RowMemory
from beam_spark_runner.engine.task.local_exchange import Exchange
from beam_spark_runner.engine.task.task import LevelTask

TaskOutputs: TypeAlias = Generator[Iterator[pa.RecordBatch], None, None]
"""What each of some tasks emits."""


class FullExchangeError(Exception):
    """The rows between two levels do not fit in memory: Spark has to exchange them."""


class _NoFile(BlockFile):
    """Refuses rows that do not fit in memory."""

    @override
    def write(self, batch: pa.RecordBatch) -> Block:
        raise FullExchangeError


def run_chained(
    programs: Sequence[LevelProgram],
    rows: Sequence[pa.RecordBatch],
    max_bytes: int,
) -> list[pa.RecordBatch]:
    """Run the tasks of all levels, and return what those of the last one emit.

    Args:
        programs: the programs of the levels.
        rows: the rows that each task of the first level reads.
        max_bytes: how much a level may emit: all of it is in memory.

    Raises:
        FullExchangeError: a level emits more.
    """
    first = programs[0]
    inputs = [rows] * (first.partitions if first.has_exchange else 1)
    memory = RowMemory(max_bytes, _NoFile)
    with contextlib.closing(run_levels(programs, inputs, memory)) as outputs:
        outputs_in_memory = memory.keep(outputs)
    return [batch for emitted in outputs_in_memory for batch in emitted]


def run_levels(
    programs: Sequence[LevelProgram],
    inputs: Sequence[Iterable[pa.RecordBatch]],
    memory: RowMemory,
    before_task: Callable[[], None] = lambda: None,
) -> TaskOutputs:
    """Run the tasks of all levels; yield what each task of the last one emits.

    A task runs while its rows are read, which must be before those of the next one. If not all are
    read, the generator must be closed, for the task to end.

    Args:
        programs: the programs of the levels.
        inputs: the rows that each task of the first level reads.
        memory: for the rows between two levels.
        before_task: is called before each task, and may raise.

    Raises:
        RowStorageError: rows between two levels do not fit in memory, and cannot be written.
    """
    for program, reader in itertools.pairwise(programs):
        exchange = Exchange.before_level(reader, memory)
        with contextlib.closing(_run_level(program, inputs, before_task)) as outputs:
            for emitted in outputs:
                exchange.add(emitted)
        inputs = exchange.finish()
    yield from _run_level(programs[-1], inputs, before_task)


def _run_level(
    program: LevelProgram,
    inputs: Sequence[Iterable[pa.RecordBatch]],
    before_task: Callable[[], None],
) -> TaskOutputs:
    for partition, batches in enumerate(inputs):
        if partition in program.finished:
            continue
        before_task()
        task = LevelTask(program, partition)
        with contextlib.closing(task.run(iter(batches))) as emitted:
            yield emitted
