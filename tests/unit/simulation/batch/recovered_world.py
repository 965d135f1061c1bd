"""The simulated world of a bounded pipeline whose driver dies: later starts continue it.

Starts of the driver use one folder. Each goes on in steps, as the only one or while an earlier one
wakes up, which may have tasks that still run.
"""

import json
from collections import Counter
from collections.abc import Sequence

from typing_extensions import override

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.errors import CheckpointStorageError, LostRowsError, SparkJobError
from beam_spark_runner.driving.run_context import RunSettings
from beam_spark_runner.engine.program import BatchPart, LevelProgram
from beam_spark_runner.recovery.batch_start import ENDED
from beam_spark_runner.recovery.finishes import Finish, encode_record
from beam_spark_runner.recovery.job_folders import Leftovers
from beam_spark_runner.recovery.job_submissions import BEGINS, submission_name, withdraw_others
from beam_spark_runner.recovery.manifest import FencedError
from beam_spark_runner.scheduling.attempts import Report
from tests.unit.simulation.batch.job_folder import DriverAnswers, SimulatedFolder, StoredFolders
from tests.unit.simulation.batch.oracle import attempts_in, check
from tests.unit.simulation.batch.pipelines import BoundedPipeline
from tests.unit.simulation.batch.rows import (
    ClusterError,
    Made,
    Stored,
)
from tests.unit.simulation.batch.starts import Start
from tests.unit.simulation.batch.world import BatchWorld

_MAX_STEPS = 40_000


class RecoveredWorld(BatchWorld):
    """All of it. What happens follows from the seed and from the calls.

    Args:
        pipeline: That the drivers run; each of its levels is a segment.
        seed: Of all that is drawn.
        faults: See ``BatchWorld``.
        jobs: How many jobs run in the folder, one after another.
        has_subfolders: Whether each of them has a subfolder.

    Attributes:
        folders: What is stored.
        committed: The metrics of jobs that have ended, by name.
        starts: The starts of the driver that have not ended, the latest last.
        count: How many starts there were.
        has_lost_rows: Whether ``lose_file`` has removed any.
        tasks: How many attempts have made something, by level and partition.
    """

    def __init__(
        self,
        pipeline: BoundedPipeline,
        seed: int,
        faults: float = 0.05,
        *,
        jobs: int = 1,
        has_subfolders: bool = True,
    ) -> None:
        super().__init__(pipeline, seed, faults)
        self._driver.kill()
        self.folders = StoredFolders()
        self.folders.root.on_created = self._created
        self._begun_jobs: set[str] = set()
        self._jobs, self.has_subfolders = jobs, has_subfolders
        self._folder_of: dict[int, str] = {}  # of its job, by attempt
        self.committed: dict[str, Sequence[bytes]] = {}
        self.starts = [Start(self)]
        self.count = 1
        self.has_lost_rows = False
        self.tasks: Counter[tuple[int, int]] = Counter()

    @override
    def close(self) -> None:
        for each in self.starts:
            each.kill()
        super().close()

    @override
    def step(self) -> None:
        """Let a start go on, or what it has begun beside itself."""
        self.steps += 1
        assert self.steps < _MAX_STEPS, "the pipeline does not come to its end"
        awake = [each for each in self.starts if each.wakes_at <= self.steps]
        if not awake and self._is_to_start():
            self.start()
            awake = self.starts[-1:]
        start = self.random.choice(awake or self.starts)
        going = [each for each in (start.steps, *start.background) if not each.has_ended]
        try:
            self.random.choice(going).go_on()
        except FencedError:
            assert start.may_be_replaced(), "the only driver has given up"
        except (CheckpointStorageError, SparkJobError, LostRowsError):
            start.kill()  # the next one continues
        if start.steps.has_ended:
            self.starts.remove(start)
        if not self.starts:
            self._start_or_end()

    def _start_or_end(self) -> None:
        if self._is_to_start():
            self.start()
            return
        assert len(self.committed) == self.begun, "a job has gone without an end"
        self._check_committed()
        self.end = "done"

    def _is_to_start(self) -> bool:
        parts = {name.rpartition("/")[2] for name in self.folders.root.content}
        return ENDED in parts or bool(self._unfinished()) or self.begins_job()

    def _unfinished(self) -> list[str]:
        """Return the jobs that have begun, and whose submission is not removed."""
        return [
            job for job in self._begun_jobs if submission_name(job) in self.folders.root.content
        ]

    @property
    def begun(self) -> int:
        """How many jobs have begun."""
        return len(self._begun_jobs)

    def begins_job(self) -> bool:
        """Whether another job is to run in the folder."""
        return self.begun < self._jobs

    def folder_for(self, answers: DriverAnswers) -> SimulatedFolder:
        """Return the folder of the submission, as a driver sees it."""
        return SimulatedFolder(
            self.folders, answers, self.random, has_subfolders=self.has_subfolders
        )

    # What happens.

    def start(self) -> None:
        """The command runs once more; earlier starts may still run."""
        self.starts.append(Start(self))
        self.count += 1

    def kill(self) -> None:
        """A driver dies, with its tasks."""
        start = self.random.choice(self.starts)
        start.kill()
        self.starts.remove(start)
        if not self.starts:
            self._start_or_end()

    def sleep(self, steps: int, *, before_commit: bool = False) -> None:
        """A driver sleeps, with its tasks, and the command runs once more.

        Args:
            steps: How long.
            before_commit: Not now, but once it is about to commit.
        """
        start = self.random.choice(self.starts)

        def sleep() -> None:
            start.wakes_at = self.steps + steps
            self.start()

        if before_commit:
            start.answers.before_commit = sleep
        else:
            sleep()

    def lose_file(self) -> None:
        """Somebody removes rows that a task has stored."""
        there = [rows for rows in self.folders.rows.values() if not rows.is_lost]
        if there:
            self.has_lost_rows = True
            self.random.choice(there).is_lost = True

    def lose_answer(self) -> None:
        """The storage fails when a driver creates its next file, which may be there."""
        self.random.choice(self.starts).answers.loss = self.random.choice(("before", "after"))

    # What drivers, jobs and the cluster see.

    def settings(self) -> RunSettings:
        return RunSettings(
            job_id="job",
            least_partitions=self.pipeline.partitions,
            most_partitions=self.pipeline.partitions + 2,
            counts_bytes=self.pipeline.counts_bytes,
            limits=self._limits(),
            check_cancelled=lambda: None,
            observer=self,
            single_task_budget_s=0.0,
            round_budget_s=1.0 if self.pipeline.has_rounds else None,
        )

    def now_s(self) -> float:
        return float(self.steps)

    @override
    def monotonic_ns(self) -> int:
        return self.steps * 1_000_000_000

    @override
    def began(self, run: int, *, is_additional: bool = False) -> None: ...

    @override
    def crashed(self, error: ClusterError) -> None: ...

    @override
    def store(self, program: LevelProgram, made: Made) -> None:
        """As ``StoredOutput``: rows, and then the finish record, each in a step."""
        place = (program.batch or BatchPart()).output_place
        assert place is not None
        report = made.report
        self._folder_of[report.attempt] = place.folder.rpartition("/")[0]
        self.tasks[report.level, report.partition] += 1
        if report.failure is not None or report.is_poisoned:
            return
        finish = Finish(report.partition, place.tasks, report.attempt)
        files = self.folders.work.get(place.folder)
        if files is None:  # the job is over, or this Spark job is
            raise ClusterError(f"{place.folder} is missing", lost=False)
        if place.has_rows:
            stored = Stored(made.work.rows, [made.mark])
            self.folders.rows[place.folder, finish.rows_name] = stored
        self.pause()
        if self.folders.work.get(place.folder) is not files:
            raise ClusterError(f"{place.folder} is missing", lost=False)
        files.create(finish.record_name, encode_record(_coded(report)))
        self.pause()

    def _created(self, name: str) -> None:
        """Look at the begin or at the end of a job; see ``BatchStart.end``."""
        content = self.folders.root.content[name]
        if name.endswith(".decision"):
            # One that is created after its submission was withdrawn has no effect.
            job = name.partition(".")[0]
            if content == BEGINS and submission_name(job) in self.folders.root.content:
                others = self._begun_jobs - self.committed.keys()
                assert not others, "two jobs of one folder run at the same time"
                self._begun_jobs.add(job)
        elif name.rpartition("/")[2] == ENDED:
            committed = tuple(map(bytes.fromhex, json.loads(content)))
            (last,) = self._begun_jobs - self.committed.keys() or {""}
            job = name.partition("/")[0].removeprefix("job-") if "/" in name else last
            before = self.committed.setdefault(job, committed)
            # A driver may sleep just before it creates the file.
            assert attempts_in(before) == attempts_in(committed)

    # What must be true.

    def _check_committed(self) -> None:
        known: set[int] = set()
        for committed in self.committed.values():
            counts = attempts_in(committed)
            assert set(counts.values()) <= {1}, "an attempt counts twice"
            assert known.isdisjoint(counts), "what one job has made counts in another one"
            assert len({self._folder_of[attempt] for attempt in counts}) <= 1
            known |= counts.keys()
            self.results = [self._made[attempt] for attempt in counts]
            check(self.pipeline.plan, self.results, self._expected, is_whole=True)
        # A driver that claims the job or commits while another one ends it leaves a file, and one
        # that dies after its submission leaves that.
        root = self.folder_for(DriverAnswers(self.folders.root, self.random))
        assert withdraw_others(root.storage, "")
        Leftovers(root).remove()
        assert not self.folders.root.content


def _coded(report: Report) -> bytes:
    proto = reports_pb2.TaskReport(
        level=report.level,
        partition=report.partition,
        attempt=report.attempt,
        monitoring_infos=report.monitoring_infos,
        emitted_bytes=report.emitted_bytes,
        returned_rows=report.returned_rows,
    )
    for run, attempts in report.consumed.items():
        proto.consumed[run].count, proto.consumed[run].sum = attempts.count, attempts.sum
    for dest, residuals in report.residuals.items():
        proto.residuals[dest].count = residuals.count
    return proto.SerializeToString()
