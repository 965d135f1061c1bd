"""The jobs of the simulated cluster: stages of tasks, as Spark runs them.

A stage begins when all outputs of the one before are there. Outputs that are lost are made again,
by other attempts: tasks that have read the earlier ones do not run again.
"""

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Protocol

from beam_spark_runner.backchannel.offers import Offer
from beam_spark_runner.driving.cluster import LevelsJob
from beam_spark_runner.engine.program import BatchPart, LevelProgram
from beam_spark_runner.scheduling.attempts import Report
from tests.unit.simulation.batch.rows import (
    ClusterError,
    Host,
    Made,
    Mark,
    Partition,
    Row,
    Stored,
    coded,
    decoded,
    partitions_of,
)
from tests.unit.simulation.batch.tasks import Task, UserError

_MAX_TRIES = 4
"""How often Spark runs a stage again since outputs were lost, or a task since its host was."""
_MAX_PAUSES = 20  # of an element that takes long


class Surroundings(Protocol):
    """What a job sees of the world.

    Attributes:
        random: for what happens inside jobs.
        faults: probability of faults there; to be given to ``happens``.
        keeps_twice: probability that two attempts at a task have stored rows for later jobs.
        hosts: machines.
        poison: elements on which user code always fails.
        shares_storage: what jobs store is in files, and not on hosts.
    """

    random: Random
    faults: float
    keeps_twice: float
    hosts: Sequence[Host]
    poison: frozenset[int]
    shares_storage: bool

    def pause(self) -> None:
        """Let the world decide what happens next."""
        ...

    def happens(self, probability: float) -> bool:
        """Draw whether something happens that makes a difference."""
        ...

    def ran(self, made: Made) -> None:
        """Learn what an attempt has made."""
        ...

    def store(self, program: LevelProgram, made: Made) -> None:
        """Store what an attempt has made for later starts of the driver, if the program says so."""
        ...

    def offer(self, offer: Offer) -> None:
        """Bring an offer to the driver."""
        ...


class _FetchFailedError(Exception):
    """Outputs of the stage before are lost."""


class Job:
    """One job.

    Args:
        world: all around it.
        levels: what it runs.

    Attributes:
        error: by which it ends, whatever it does.
    """

    def __init__(self, world: Surroundings, levels: LevelsJob) -> None:
        self._world, self._levels = world, levels
        self._source = partitions_of(levels.source)
        self._stages: list[LevelProgram | None] = [*levels.programs]
        if levels.exchanges_source:
            self._stages.insert(0, None)  # it reads the rows of the source, and spreads them
        partitions = levels.programs[0].partitions
        self._outputs: list[list[Stored | None]] = [
            [None] * (partitions if number else len(self._source))
            for number in range(len(self._stages))
        ]
        for partition in levels.programs[-1].finished:
            self._outputs[-1][partition] = Stored([])  # an earlier start has its report
        self._tries = [0] * len(self._stages)
        self._at = 0  # the index of the level that runs
        self.error: ClusterError | None = None

    @property
    def in_one_task(self) -> bool:
        """See ``LevelsJob``."""
        return self._levels.single_task_budget_s is not None

    @property
    def run(self) -> int:
        """Its number."""
        return self._levels.programs[0].run

    @property
    def level(self) -> int:
        """The number of the level that runs, among those of the plan."""
        return self._levels.programs[self._at].level

    @property
    def are_some_read(self) -> bool:
        """Whether some tasks of the last level have read what those before have sent, not all."""
        ended = [each is not None for each in self._outputs[-1]]
        return len(ended) > 1 and any(ended) and not all(ended)

    def fail(self, reason: str, *, lost: bool) -> None:
        """Let the cluster give the job up. See ``ClusterError``."""
        if self.in_one_task:
            stack = f'{reason}\nFile "task.py", line 9 in beam_level_{self.level}\n'
            self.error = ClusterError(stack, lost=lost)
        else:
            after = len(self._levels.programs) - 1 - self._at
            self.error = ClusterError(reason, lost=lost, levels_after=after)

    def repeat(self, stage: int) -> None:
        """Lose what a stage has made, unless it is the last one, whose outputs are results."""
        stage %= len(self._outputs)
        if stage < len(self._outputs) - 1:
            self._outputs[stage] = [None] * len(self._outputs[stage])

    def run_tasks(self) -> list[Partition]:
        """Run all tasks; return what those of the last level have stored."""
        if self.in_one_task:
            return [Partition([self._tried(self._first_task)])]
        while (place := self._next()) is not None:
            stage, partition = place
            try:
                self._outputs[stage][partition] = self._tried(self._task_of(stage, partition))
            except _FetchFailedError:
                self._count_try(stage - 1)
            if stage and self._world.happens(self._world.faults):
                # The host that has a task's rows is lost while they are read.
                lost = self._world.random.randrange(len(self._outputs[stage - 1]))
                self._outputs[stage - 1][lost] = None
        return self._results([each for each in self._outputs[-1] if each is not None])

    def _pause(self) -> None:
        self._world.pause()
        if self.error is not None:
            raise self.error

    def _count_try(self, stage: int) -> None:
        self._tries[stage] += 1
        if self._tries[stage] >= _MAX_TRIES:
            raise ClusterError("a stage has failed the maximum number of times", lost=True)

    def _next(self) -> tuple[int, int] | None:
        """Return stage and partition of the next task; None: all have ended."""
        stage, missing = len(self._outputs) - 1, _missing(self._outputs[-1], are_results=True)
        while missing and stage and (before := _missing(self._outputs[stage - 1])):
            stage, missing = stage - 1, before
        return (stage, missing[0]) if missing else None

    def _results(self, stored: Sequence[Stored]) -> list[Partition]:
        """Return what is stored. Of some tasks, two attempts have stored something."""
        found: list[Partition] = []
        for number, each in enumerate(stored):
            versions = [each]
            if self._levels.name is not None and self._world.happens(self._world.keeps_twice):
                versions += self._second(number)
            if self._world.shares_storage:
                found += [Partition([version]) for version in versions]
            else:
                found.append(Partition(versions))
        return found

    def _second(self, number: int) -> list[Stored]:
        """Run a task again whose output was accepted; return its output if there is one."""
        try:
            return [self._tried(self._task_of(-1, number))]
        except _FetchFailedError:
            return []

    def _tried(self, task: Callable[[Host, bool], Stored]) -> Stored:
        """Try a task until an attempt has stored its output; see ``_task_of``."""
        failed = lost = 0
        most_failed = self._levels.programs[0].limits.max_attempts
        while True:
            host = self._world.random.choice(self._world.hosts)
            boots = host.boots
            self._pause()
            is_last = failed + 1 >= most_failed
            try:
                stored = task(host, is_last)
                if not is_last and self._world.happens(self._world.faults):
                    raise UserError("it works the next time")
            except UserError:
                failed += 1
                continue
            if host.boots == boots:
                return stored
            lost += 1
            if lost >= _MAX_TRIES:
                raise ClusterError("a task has lost its host each time", lost=True)

    def _task_of(self, stage: int, partition: int) -> Callable[[Host, bool], Stored]:
        """Return a task of a stage, to be tried on a host; and it may be the last attempt."""
        stage %= len(self._stages)
        program = self._stages[stage]

        def read() -> Stored:
            stored = self._source[partition].read(self._world.random)
            assert self._levels.has_marks or not stored.marks
            return stored

        def run(host: Host, is_last: bool) -> Stored:
            self._at = max(0, stage - self._levels.exchanges_source)
            if program is None:
                stored = read()
                return Stored(stored.rows, stored.marks, host=host)
            if stage:
                stored = self._sent_to(stage, partition)
            else:
                fed = _fed(program)
                stored = read() if fed is None else Stored(fed)
            task = Task(program, partition, self._drawn(), self._world.poison)
            made = task.run(stored.rows, stored.marks, is_last_attempt=is_last)
            self._pause()
            self._world.ran(made)
            self._world.store(program, made)
            is_result = stage == len(self._stages) - 1
            return Stored(
                made.work.rows,
                [made.mark],
                [made.report, *stored.reports],
                None if is_result and self._world.shares_storage else host,
            )

        return run

    def _sent_to(self, stage: int, partition: int) -> Stored:
        """Return what the tasks of the stage before have sent to a task."""
        rows: list[Row] = []
        marks: list[Mark] = []
        reports: list[Report] = []
        before, count = self._outputs[stage - 1], len(self._outputs[stage])
        for each in before:
            if each is None or not each.is_there:
                raise _FetchFailedError
            rows += [row for row in each.rows if row.route % count == partition]
            marks += each.marks
            reports += [one for one in each.reports if one.partition % count == partition]
        return Stored(rows, marks, reports)

    def _drawn(self) -> int:
        return self._world.random.getrandbits(63)

    def _first_task(self, host: Host, is_last: bool) -> Stored:
        """Run the only task; see ``engine.task.first_task``."""
        world = self._world
        rows: Sequence[Row] = _fed(self._levels.programs[0]) or []
        marks: list[Mark] = []
        reports: list[Report] = []
        for index, program in enumerate(self._levels.programs):
            self._at = index
            self._pause()
            attempt = self._drawn()
            here = {int(stage.input.dest) for stage in program.stages}
            is_late = world.random.random() < 0.4
            read, unread = _cut(rows, world.random) if is_late else (rows, [])
            offered = [row for row in unread if row.dest in here]
            is_splittable = any(stage.description.is_splittable for stage in program.stages)
            if offered and not is_splittable:
                # An element takes long.
                world.offer(Offer(program.run, program.level, attempt, coded(offered)))
                for _ in range(world.random.randrange(_MAX_PAUSES)):
                    self._pause()
            task = Task(program, 0, attempt, world.poison)
            made = task.run(read, marks, unread, is_last_attempt=is_last)
            world.ran(made)
            reports.append(made.report)
            stops = is_late or made.mark.failed or made.mark.left_residuals
            if stops or not program.has_next:
                return Stored([*made.work.rows, *unread], [Mark(program.run, attempt)], reports)
            rows, marks = made.work.rows, [made.mark]
        raise AssertionError("a job without levels")


def _missing(outputs: Iterable[Stored | None], *, are_results: bool = False) -> list[int]:
    """Return which outputs there are none of. Results have been told to the driver."""
    return [
        number
        for number, each in enumerate(outputs)
        if each is None or not (are_results or each.is_there)
    ]


def _fed(program: LevelProgram) -> list[Row] | None:
    """Return the rows that a program has; None: its tasks read theirs."""
    batch = program.batch or BatchPart()
    return decoded(batch.driver_rows) if batch.driver_rows else None


def _cut(rows: Sequence[Row], random: Random) -> tuple[list[Row], list[Row]]:
    """Return the rows that a first task reads, and those that it leaves; no group is torn apart."""
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.route, []).append(row)
    some = list(groups.values())
    count = random.randrange(len(some)) + 1 if some else 0
    return [row for each in some[:count] for row in each], [
        row for each in some[count:] for row in each
    ]
