"""A Spark task that runs one epoch after another, as the driver asks for them.

The events of a TestStream have few elements, and each has an epoch: Spark's jobs, stages and
exchanges would take many times as long as the bundles.
"""

import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection

import pyarrow.compute as pc

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.task.chained_tasks import FullExchangeError, run_chained
from beam_spark_runner.engine.task.epoch_requests import Request, Response
from beam_spark_runner.engine.task.task import at_home

IDLE_S = 0.2
MAX_S = 2.0
"""How long a task waits for the next epoch, and how long it lasts: other Spark jobs of the session
need its slot, too."""
_FIRST_S = 60.0  # for the first epoch: the driver has it when it starts the task


def serve(driver: Connection) -> None:
    """Run epochs until none is requested for ``IDLE_S``, or for ``MAX_S`` at most."""
    ends_at_s = time.monotonic() + MAX_S
    chains: dict[int, Sequence[LevelProgram]] = {}
    while driver.poll(IDLE_S if chains else _FIRST_S):
        try:
            request: Request = driver.recv()
        except EOFError:  # the driver needs no more epochs
            return
        driver.send(_response_to(request, chains))
        if time.monotonic() > ends_at_s:
            return


def _response_to(request: Request, chains: dict[int, Sequence[LevelProgram]]) -> Response:
    if request.programs is not None:
        chains[request.chain] = request.programs
    programs = _programs(chains, request.chain)
    with at_home(programs[0]):
        rows = schema.batches_of_text(request.rows)
        try:
            emitted = run_chained(programs, rows, request.max_bytes)
        except FullExchangeError:
            return None
    return [
        value
        for batch in emitted
        for value in batch.filter(pc.equal(batch.column(0), schema.REPORT)).column(4).to_pylist()
    ]


def _programs(chains: Mapping[int, Sequence[LevelProgram]], chain: int) -> Sequence[LevelProgram]:
    if chain not in chains:
        raise InvariantError(f"the driver has not sent the programs {chain}")
    return chains[chain]
