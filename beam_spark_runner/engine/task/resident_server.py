"""A Spark task that does one small job after another, as the driver asks for them.

The events of a TestStream have few elements, and each has an epoch; the pipelines of tests and
notebooks have several segments for few elements: Spark's jobs, stages and exchanges would take many
times as long as the bundles.
"""

import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection

import pyarrow.compute as pc

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.task.chained_tasks import FullExchangeError, run_chained
from beam_spark_runner.engine.task.first_task import begin_segment
from beam_spark_runner.engine.task.resident_requests import (
    EpochRequest,
    Request,
    Response,
    SegmentRequest,
)
from beam_spark_runner.engine.task.task import at_home

_FIRST_S = 60.0  # for the first request: the driver has it when it starts the task


def serve(driver: Connection, idle_s: float, max_s: float) -> None:
    """Answer requests.

    Args:
        driver: sends them.
        idle_s: how long to wait for the next request.
        max_s: the time after which no other request is answered.
    """
    ends_at_s = time.monotonic() + max_s
    chains: dict[int, Sequence[LevelProgram]] = {}
    patience_s = _FIRST_S
    while driver.poll(patience_s):
        try:
            request: Request = driver.recv()
        except EOFError:  # the driver no longer needs the task
            return
        driver.send(_response_to(request, chains))
        if time.monotonic() > ends_at_s:
            return
        patience_s = idle_s


def _response_to(request: Request, chains: dict[int, Sequence[LevelProgram]]) -> Response:
    if isinstance(request, SegmentRequest):
        return begin_segment(request.programs, request.budget_s)
    return _run_epoch(request, chains)


def _run_epoch(
    request: EpochRequest, chains: dict[int, Sequence[LevelProgram]]
) -> list[bytes] | None:
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
