"""The simulated world of a bounded pipeline: its driver, a cluster, and what must be true.

The loop over segments continues in steps, and so does what it has started. Wherever they ask
the cluster for something, the world may continue with the other one, or let something happen.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from beam_spark_runner.backchannel import offers
from beam_spark_runner.core.errors import BundleFailedError, SparkJobError
from beam_spark_runner.core.ids import SegmentId, StageId, TransformId
from beam_spark_runner.driving import stage_programs
from beam_spark_runner.driving.run_context import RunMetrics, RunSettings
from beam_spark_runner.driving.segment_job import segment_title, title_of
from beam_spark_runner.driving.segment_loop import run_plan
from beam_spark_runner.engine.limits import Limits
from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.portable.stage_description import StageDescription
from beam_spark_runner.scheduling.attempts import Report
from beam_spark_runner.scheduling.segments import MAX_CRASHES, MAX_RUNS
from beam_spark_runner.spark.driver import helping_job
from tests.unit.simulation.batch.cluster import SimulatedCluster
from tests.unit.simulation.batch.oracle import attempts_in, check, undisturbed
from tests.unit.simulation.batch.pipelines import BoundedPipeline
from tests.unit.simulation.batch.rows import ClusterError, Host, Made
from tests.unit.simulation.steps import Steps, pause

_HOSTS = 3
_MAX_STEPS = 20_000
_MAX_JOBS = 40  # of one run of a segment
_FINAL = "a disk is full"


class CancelledError(Exception):
    """The pipeline was cancelled."""


class BatchWorld:
    """All of it. What happens follows from the seed and from the calls.

    Args:
        pipeline: that the driver runs.
        seed: of all that is drawn.
        faults: probability of faults within jobs.

    Attributes:
        keeps_twice: probability that two attempts' rows are stored for later jobs.
        steps: how many were taken.
        end: how the driver has ended: "done", "failed", "gave up", "cancelled"; empty: it has not.
        runs: how often each segment has run.
        beside: the numbers of jobs that have helped first tasks.
        results: what attempts have made whose output counts, in the end.
        error: by which it has given up.
        holds_back: which one waits while both could run: "driver", or "beside" it; empty: none.
    """

    def __init__(self, pipeline: BoundedPipeline, seed: int, faults: float = 0.05) -> None:
        self.pipeline, self.faults = pipeline, faults
        self.keeps_twice = faults
        self.random = Random(seed)
        self.shares_storage = pipeline.shares_storage
        self.steps, self.end, self.holds_back = 0, "", ""
        self.runs: Counter[SegmentId] = Counter()
        self.error: SparkJobError | None = None
        self.beside: set[int] = set()
        self.results: list[Made] = []
        self.poison: frozenset[int] = frozenset()
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(stage_programs, "describe", _described)
        self._patch.setattr(helping_job, "threading", SimpleNamespace(Thread=self._thread))
        self._patch.setattr(offers, "queue", SimpleNamespace(SimpleQueue=_Queue))
        self.hosts: Sequence[Host] = [Host() for _ in range(_HOSTS)]
        self.offers = offers.Offers()
        self.cluster = SimulatedCluster(self)
        self._tally = RunMetrics()
        self._made: dict[int, Made] = {}  # by attempt
        self._begun: dict[int, SegmentId] = {}  # by job
        self._segment: SegmentId | None = None  # that runs
        self._owed: set[SegmentId] = set()  # whose rows were lost before a reader had them
        self._jobs_of_run = self._crashes = self._happened = 0
        self._is_cancelled = False
        self._blamed: set[str] = set()
        self._expected = undisturbed(pipeline.plan, self._limits())
        if pipeline.is_poisoned and self._expected:
            elements = sorted({element for _, element, _ in self._expected})
            self.poison = frozenset([self.random.choice(elements)])
        self._driver = Steps(self._run)
        self._threads: list[Steps] = []

    def close(self) -> None:
        """Let go of everything."""
        for each in (*self._threads, self._driver):
            each.kill()
        self._patch.undo()

    # What happens.

    def step(self) -> None:
        """Let the driver continue, or what it has started."""
        self.steps += 1
        assert self.steps < _MAX_STEPS, "the pipeline does not come to its end"
        self._threads = [each for each in self._threads if not each.has_ended]
        going = self._threads if self.holds_back == "driver" else []
        if not going:
            beside = [] if self.holds_back == "beside" else self._threads
            going = [self._driver, *beside]
        try:
            self.random.choice(going).go_on()
        except BundleFailedError:
            assert self.poison, "user code has not failed"
            self.end = "failed"
        except SparkJobError as error:
            self._check_error(error)
            self.error, self.end = error, "gave up"
        except CancelledError:
            assert self._is_cancelled
            self.end = "cancelled"
        if self._driver.has_ended:
            self.end = self.end or "done"
            assert all(each.has_ended for each in self._threads), "something runs still"
            assert not self.cluster.running
            self._check_end()

    def finish(self) -> None:
        """Without further disturbance the pipeline comes to its end."""
        self.faults, self.keeps_twice, self.holds_back = 0.0, 0.0, ""
        while not self.end:
            self.step()

    def lose_host(self) -> None:
        """A machine is lost, with the tasks that run there and with what is stored there."""
        self._happened += 1
        self.random.choice(self.hosts).boots += 1

    def lose_rows(self) -> None:
        """What an attempt has stored for later jobs is lost. Another attempt's may be left."""
        if self.cluster.stored and not self.shares_storage:
            self._happened += 1
            self.random.choice(self.cluster.stored).is_lost = True

    def lose_all_hosts(self) -> None:
        """All machines are lost together."""
        self._happened += 1
        for host in self.hosts:
            host.boots += 1

    def repeat_stage(self, stage: int) -> None:
        """A stage runs again in the midst of a job."""
        self._happened += 1
        for job in self.cluster.running:
            job.repeat(stage)

    def crash(self) -> None:
        """The cluster gives a job up since machines were lost."""
        self._happened += 1
        if self.cluster.running:
            self.random.choice(self.cluster.running).fail("executor lost", lost=True)

    def give_up(self) -> None:
        """The cluster gives a job up for another reason."""
        if self.cluster.running:
            job = self.random.choice(self.cluster.running)
            job.fail(_FINAL, lost=False)
            plan = self.pipeline.plan
            levels = {
                segment.first_level + index: level
                for segment in plan.segments
                for index, level in enumerate(segment.levels)
            }
            self._blamed = {title_of(plan, [levels[job.level]])}
            if job.run in self.beside:  # the driver only knows that another job helps a segment
                self._blamed = {segment_title(plan, each) for each in plan.segments}

    def cancel(self) -> None:
        """The pipeline is cancelled."""
        self._is_cancelled = True
        self.cluster.cancel()

    # What jobs and the cluster see: ``Surroundings``.

    def pause(self) -> None:
        pause()

    def happens(self, probability: float) -> bool:
        does_happen = self.random.random() < probability
        self._happened += does_happen
        return does_happen

    def ran(self, made: Made) -> None:
        self._made[made.report.attempt] = made

    def store(self, program: LevelProgram, made: Made) -> None: ...

    def offer(self, offer: offers.Offer) -> None:
        self.offers.put(offer)

    def crashed(self, error: ClusterError) -> None:
        self._crashes += 1
        if error.missing is not None:
            self._owed.add(self._begun[error.missing])
            self._owed -= {self._segment}  # it runs again in any case

    # What the driver sees. The world is its clock and its observer, too.

    def now_us(self) -> int:
        return self.steps

    def monotonic_ns(self) -> int:
        return self.steps

    def began(self, run: int, *, is_additional: bool = False) -> None:
        assert run not in self._begun, "two jobs have one number"
        assert self._segment is not None
        self._begun[run] = self._segment
        self._jobs_of_run += 1
        assert self._jobs_of_run < _MAX_JOBS, "a segment does not come to its end"
        if is_additional:
            self.beside.add(run)

    def reported(self, reports: Sequence[Report]) -> None: ...

    def accepted(self, reports: Sequence[Report]) -> None: ...

    def _run(self) -> None:
        pipeline = self.pipeline
        settings = RunSettings(
            job_id="job",
            least_partitions=pipeline.partitions,
            most_partitions=pipeline.partitions + 2,
            counts_bytes=pipeline.counts_bytes,
            limits=self._limits(),
            check_cancelled=self._check_cancelled,
            observer=self,
            round_budget_s=1.0 if pipeline.has_rounds else None,
            single_task_budget_s=1.0 if pipeline.has_first_tasks else 0.0,
            on_segment=self._on_segment,
        )
        run_plan(pipeline.plan, settings, self.cluster, self._tally, self)

    def _limits(self) -> Limits:
        return Limits(
            max_attempts=self.pipeline.max_attempts,
            row_limit_bytes=1,
            max_element_bytes=1,
            cache_bytes=1,
        )

    def _check_cancelled(self) -> None:
        if self._is_cancelled:
            raise CancelledError

    def _on_segment(self, segment: SegmentId) -> None:
        self.runs[segment] += 1
        self._jobs_of_run = 0
        self._segment = segment
        self._owed.discard(segment)

    def _thread(self, target: Callable[[], None], name: str, daemon: bool) -> "_Thread":
        assert daemon, f"{name} may outlive the process"
        return _Thread(target, self._threads)

    # What must be true.

    def _check_error(self, error: SparkJobError) -> None:
        """A pipeline fails only for a reason that there was."""
        plan = self.pipeline.plan
        if error.reason.endswith(f"({MAX_RUNS} times)"):
            most = {
                segment_title(plan, each)
                for each in plan.segments
                if self.runs[each.id] == MAX_RUNS
            }
            assert error.segment in most
        elif error.reason.endswith(f"({MAX_CRASHES} times)"):
            assert self._crashes >= MAX_CRASHES
            assert not self._owed, "lost rows were not made again"
        else:
            assert error.reason.startswith(_FINAL)
            assert error.segment in self._blamed

    def _check_end(self) -> None:
        """Each element has come to its end once, and all readers of it have seen the same.

        If the pipeline has not come to its end, some are missing.
        """
        plan, counts = self.pipeline.plan, attempts_in(self._tally.committed)
        assert set(counts.values()) <= {1}, "an attempt counts twice"
        assert counts.keys() <= attempts_in(self._tally.attempted).keys()
        # Of rows that were lost together, those of each segment may be missed one after another.
        most_runs = 1 + self._happened * (len(plan.segments) + 1)
        assert max(self.runs.values(), default=0) <= most_runs, "segments run again for no reason"
        is_done = self.end == "done"
        if is_done:
            assert not self.poison, "user code has failed, and the pipeline has not"
            assert not self._owed, "lost rows were not made again"
        self.results = [self._made[attempt] for attempt in counts]
        check(plan, self.results, self._expected, is_whole=is_done)


class _Thread:
    """See ``threading.Thread``."""

    def __init__(self, target: Callable[[], None], threads: list[Steps]) -> None:
        self._steps, self._threads = Steps(target), threads

    def start(self) -> None:
        self._threads.append(self._steps)

    def is_alive(self) -> bool:
        return not self._steps.has_ended

    def join(self, timeout: float | None) -> None:
        pause()
        while timeout is None and self.is_alive():
            pause()


class _Queue:
    """See ``queue.SimpleQueue``."""

    def __init__(self) -> None:
        self._items: list[Any] = []

    def put(self, item: Any) -> None:
        self._items.append(item)

    def get(self) -> Any:
        while not self._items:
            pause()
        return self._items.pop(0)


def _described(plan: Plan, stage: StageId) -> StageDescription:
    """Return as much of a description as simulated tasks look at."""
    return StageDescription(
        coded_descriptor=b"",
        source=TransformId(""),
        is_splittable=plan.stages[stage].is_splittable,
    )
