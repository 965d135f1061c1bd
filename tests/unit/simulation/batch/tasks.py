"""A task of a level of a batch pipeline: an honest model of ``engine.task.task``.

It does what the program of the level says: which stages run, where their elements go, when
restrictions are left to a round, when rows are only passed on.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from random import Random
from typing import NamedTuple

from apache_beam.metrics import monitoring_infos

from beam_spark_runner.core.ids import PCollectionId, StageId
from beam_spark_runner.engine.program import BatchPart, Edge, LevelProgram, StageProgram
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.scheduling.attempts import IN_THIS_JOB, Failure, Report, Residuals
from tests.unit.simulation.batch.rows import Made, Mark, Row, Work, coded, consumed, decoded

_KEYS = 3
_FIRST = 6
"""How many elements become of an impulse."""
_FANS = (1, 1, 1, 1, 2, 0)
"""How many elements become of another one."""
_BYTES_OF_ROW = 40 << 20  # so that the number of partitions depends on the rows


class UserError(Exception):
    """User code has failed, and the task may be tried again."""


class Element(NamedTuple):
    """What a stage gets; see ``Row``."""

    id: int
    token: int
    start: int = 0


def mixed(*parts: object) -> int:
    """Return a number that depends on all of these."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")


def length(id_: int) -> int:
    """Return the length of an element's restriction."""
    return 1 + id_ % 7


class Task:
    """One attempt at a task of a level.

    Args:
        program: of the level.
        partition: of the task.
        attempt: random.
        poison: elements on which user code always fails.
    """

    def __init__(
        self, program: LevelProgram, partition: int, attempt: int, poison: Collection[int] = ()
    ) -> None:
        self._program, self._partition, self._attempt = program, partition, attempt
        self._poison = poison
        self._batch = program.batch or BatchPart()
        self._random = Random(attempt)
        self._local: dict[StageId, list[Element]] = {}
        self._residuals: dict[int, int] = {}
        self._work = Work()

    def run(
        self,
        rows: Sequence[Row],
        marks: Sequence[Mark],
        unread: Sequence[Row] = (),
        *,
        is_last_attempt: bool = False,
    ) -> Made:
        """Process rows; return what becomes of them.

        Args:
            rows: the input.
            marks: of it.
            unread: rows that the task does not get; see ``engine.task.first_task``.
            is_last_attempt: an error of user code is reported.

        Raises:
            UserError: user code has failed.
        """
        passes_on = self._batch.may_pass_on and any(each.left_residuals for each in marks)
        poisoned, failure = any(each.failed for each in marks), None
        if passes_on and not poisoned:
            self._work.rows += rows
        elif not poisoned:
            try:
                self._run_stages(rows)
            except UserError as error:
                if not is_last_attempt:
                    raise
                self._work, self._residuals = Work(), {}
                failure = Failure(step="user code", cause=str(error), traceback_text="", kind="")
        program, mark = self._program, Mark(self._program.run, self._attempt)
        if program.has_next:
            left = passes_on or bool(self._residuals)
            mark = Mark(IN_THIS_JOB, self._attempt, poisoned or failure is not None, left)
        report = Report(
            level=program.level,
            partition=self._partition,
            attempt=self._attempt,
            consumed=consumed(marks),
            monitoring_infos=(counted(self._attempt),),
            failure=failure,
            is_poisoned=poisoned,
            emitted_bytes=len(self._work.rows) * _BYTES_OF_ROW,
            residuals={dest: Residuals(count, 0) for dest, count in self._residuals.items()},
            returned_rows=self._returned(),
            unread_rows=len(unread),
        )
        return Made(program.run, self._work, mark, report)

    def _returned(self) -> bytes | None:
        returns = self._batch.returned_dests
        if not returns:
            return None
        rows = [row for row in self._work.rows if row.dest in returns]
        return coded(rows) if len(rows) <= self._random.choice((4, 100)) else None

    def _run_stages(self, rows: Sequence[Row]) -> None:
        here = {int(stage.input.dest) for stage in self._program.stages}
        self._work.rows += [row for row in rows if row.dest not in here]
        for stage in self._program.stages:
            mine = [row for row in rows if row.dest == stage.input.dest]
            self._work.consumed += mine
            self._look_up(stage)
            elements = [Element(row.id, row.token, row.start) for row in mine]
            if stage.input.delivery is Delivery.GROUP_BY_KEY:
                elements = _groups(mine)
            elements += self._local.pop(stage.stage, [])
            if stage.description.is_splittable:
                self._process_restrictions(stage, elements)
                continue
            for element in elements:
                self._process(stage, element, 0)

    def _look_up(self, stage: StageProgram) -> None:
        for view in stage.in_batch.side_inputs.values():
            assert view.inline is not None
            self._work.views.append((int(view.id), decoded(view.inline)))

    def _process_restrictions(self, stage: StageProgram, elements: Sequence[Element]) -> None:
        """Process restrictions position by position, until the budget is spent."""
        left = sum(length(each.id) for each in elements)
        budget_us = self._batch.round_budget_us
        if budget_us is not None:
            left = max(1, budget_us * self._random.randrange(1, 4) // 1_000_000)
            if self._batch.leaves_much and len(elements) > 1:
                left = 0
        for each in elements:
            position = each.start
            while position < length(each.id) and left:
                self._process(stage, each, position)
                position, left = position + 1, left - 1
            if position < length(each.id):
                dest = int(stage.input.dest)
                self._send(Row(dest, self._random.getrandbits(60), each.id, each.token, position))
                self._residuals[dest] = self._residuals.get(dest, 0) + 1

    def _process(self, stage: StageProgram, element: Element, position: int) -> None:
        """Run user code on an element."""
        if element.id in self._poison:
            raise UserError(f"element {element.id}")
        self._work.processed.append((stage.stage, element.id, position))
        for collection, edges in stage.outputs.items():
            whole = mixed(collection, element.id, position)
            for number in range(_FANS[whole % len(_FANS)] if element.id else _FIRST):
                id_ = mixed(whole, number)
                token = mixed(self._attempt, id_, element.token)
                self._emit(stage, collection, edges, Element(id_, token))

    def _emit(
        self,
        stage: StageProgram,
        collection: PCollectionId,
        edges: Iterable[Edge],
        element: Element,
    ) -> None:
        for edge in edges:
            route = self._random.getrandbits(60)
            if edge.is_grouped:
                route = mixed(edge.dest, element.id % _KEYS)
            self._send(Row(int(edge.dest), route, element.id, element.token))
        for reader in stage.local[collection]:
            self._local.setdefault(reader, []).append(element)

    def _send(self, row: Row) -> None:
        self._work.rows.append(row)
        self._work.emitted.append(row)


def _groups(rows: Sequence[Row]) -> list[Element]:
    """Return an element for each key, which depends on all of its values."""
    by_key: dict[int, list[Row]] = {}
    for row in rows:
        by_key.setdefault(row.route, []).append(row)
    return [
        Element(mixed(sorted(row.id for row in some)), mixed(sorted(row.token for row in some)))
        for some in by_key.values()
    ]


NAMESPACE = "simulation"


def counted(attempt: int) -> bytes:
    """Return the metric that counts an attempt."""
    info = monitoring_infos.int64_user_counter(NAMESPACE, f"{attempt:x}", 1, "step")
    coded: bytes = info.SerializeToString()
    return coded
