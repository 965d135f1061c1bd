"""A driver: the real loop over epochs, on a cluster, clock and storage that the world simulates.

The loop runs in a greenlet. Wherever it asks the world for something, the world may go on with
something else first, or never come back to it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import Any

from beam_spark_runner.core.errors import SparkJobError
from beam_spark_runner.core.routing import KEY_GROUPS
from beam_spark_runner.driving.epoch_loop import EpochLoop
from beam_spark_runner.driving.epoch_protocols import EpochSchedule, InPartitions
from beam_spark_runner.driving.epoch_segments import EpochSegments
from beam_spark_runner.driving.playback import KnownEvents, Playback
from beam_spark_runner.driving.run_context import RunMetrics, RunSettings
from beam_spark_runner.driving.stream_rules import StreamRules
from beam_spark_runner.engine.limits import Limits
from beam_spark_runner.engine.program import EpochPart
from beam_spark_runner.recovery.copies import Namespaces
from beam_spark_runner.recovery.driver_start import Checkpoints
from beam_spark_runner.recovery.manifest import FencedError, Manifest
from beam_spark_runner.scheduling.attempts import Report
from beam_spark_runner.scheduling.test_stream_events import End
from tests.unit.simulation.cluster import SimulatedCluster, Surroundings, Tasks
from tests.unit.simulation.elements import LEVELS, SOURCE
from tests.unit.simulation.hosts import LINEAGE, Attempt, Moving, places
from tests.unit.simulation.pipeline import TAG, finishing, plan
from tests.unit.simulation.steps import Steps, pause
from tests.unit.simulation.storage import Answers, StorageError
from tests.unit.simulation.tables import STEP, SimulatedTables

_SLOWNESS = 10  # how much slower than time a clock may be that was set back
_PAUSE = 0.4  # probability of a pause after a step in which there may be one
_INTERVAL_US = 500_000

_KEYED = {stage for stages in LEVELS.values() for stage in stages if stage != SOURCE}


@dataclass
class Driver:
    """One start of the program.

    Attributes:
        world: all around it.
        answers: its storage.
        random: for what happens inside its jobs.
        faults: probability of faults there.
        began: how many epochs were committed before it.
        partitions: of each level, now.
        wants: the number that it should have from its next epoch on; 0: the one that it has.
        namespaces: of the state store; None: keys are in shards.
        skew_us: by which its clock is wrong.
        is_paused: it does nothing until it is woken.
        pauses_in: in the midst of which of "start", "sweep", "move", "job", "commit" it will pause.
        running: attempts for which it waits.
        ran: the epoch that its cluster has run last. 0: none.
        tasks: the attempts of that epoch that it has accepted, by level and partition.
        end: why it has ended: "done", "fenced", "storage", "gave up"; empty: it has not.
    """

    world: Surroundings
    answers: Answers
    random: Random
    faults: float
    began: int
    partitions: int
    namespaces: Namespaces | None
    wants: int = 0
    skew_us: int = 0
    is_paused: bool = False
    pauses_in: str = ""
    running: list[Attempt | Moving] = field(default_factory=list)
    ran: int = 0
    tasks: Tasks = field(default_factory=dict)
    end: str = ""
    doing: str = "start"

    def __post_init__(self) -> None:
        self.answers.pause = self.pause
        self.background = _AtOnce()
        self._steps = Steps(self._run)

    def step(self) -> None:
        """Go on; not while attempts run."""
        try:
            self._steps.go_on()
        except FencedError:
            self.end = "fenced"
        except StorageError:
            self.end = "storage"
        except SparkJobError:
            self.end = "gave up"
        if self._steps.has_ended:
            self.end = self.end or "done"
        elif (self.answers.doing or self.doing) == self.pauses_in and self.random.random() < _PAUSE:
            self.is_paused, self.pauses_in = True, ""

    def kill(self) -> None:
        """The process ends where it is: nothing that it would still do happens."""
        self.answers.is_dead = True
        self._steps.kill()

    def pause(self) -> None:
        """Let the world decide what happens before this driver goes on."""
        pause()

    def clock_us(self) -> int:
        """Return what the clock of its machine shows."""
        return self.world.time_us() + self.skew_us

    def _run(self) -> None:
        events = self.world.pipeline.events
        settings = RunSettings(
            job_id="job",
            least_partitions=self.partitions,
            most_partitions=self.partitions,
            counts_bytes=False,
            limits=Limits(max_attempts=1, row_limit_bytes=1, max_element_bytes=1, cache_bytes=1),
            check_cancelled=lambda: None,
            observer=_Nobody(),
            round_budget_s=None,
            single_task_budget_s=0.0,
            epoch=EpochPart(shards=places(has_store=self.namespaces is not None)),
            rescaled=lambda partitions: self.wants or self.partitions,
        )
        cluster, clock = SimulatedCluster(self), _Clock(self)
        cluster.tables = SimulatedTables(self.world.table, self, lambda: self.answers.is_dead)
        waits = _Waits(self)

        def in_partitions(number: int) -> InPartitions:
            self.partitions = number
            rules = StreamRules(
                partitions=number,
                version=self.world.pipeline.version,
                finishing=finishing(number),
                impulses=() if events else (SOURCE,),
                lags=(),
                splittable={SOURCE},
                keyed=_KEYED,
                tables={SOURCE: STEP},
                played={SOURCE: TAG} if events is not None else {},  # type: ignore[dict-item]
            )
            of_number = replace(settings, least_partitions=number)
            segments = EpochSegments(plan(), of_number, cluster, RunMetrics(), clock, _programs)
            return InPartitions(rules, segments)

        loop = EpochLoop(
            in_partitions,
            settings,
            cluster,
            _Observer(self, waits),
            Checkpoints(
                storage=self.answers,
                lineage=LINEAGE,
                restart="auto",
                key_groups=KEY_GROUPS,
                namespaces=self.namespaces,
                new_chain=f"{self.world.time_us():x}",
            ),
            EpochSchedule(
                interval_us=_INTERVAL_US,
                sleep=waits.sleep,
                wait=waits.sleep,
                drains=lambda: False,
                drain=lambda: None,
                background=self.background,
            ),
            clock,
            None
            if events is None
            else Playback(KnownEvents([*events, End()]), [TAG], "Events", lambda: None),
        )
        loop.run()


class _Nobody:
    def began(self, run: int, *, is_additional: bool = False) -> None:
        pass

    def reported(self, reports: Sequence[Report]) -> None:
        pass

    def accepted(self, reports: Sequence[Report]) -> None:
        pass


@dataclass(frozen=True)
class _Clock:
    driver: Driver

    def now_us(self) -> int:
        return self.driver.clock_us()

    def monotonic_ns(self) -> int:
        return self.driver.world.time_us() * 1_000


class _AtOnce:
    """Work in the background that is done before anything else."""

    def submit(self, work: Callable[[], Any], /) -> Any:
        result = work()
        return SimpleNamespace(result=lambda: result)


def _programs(segment: Any, levels: range, stores_rows: bool) -> Any:
    """Return as much of the programs as the loop looks at: the tasks are the world's own."""
    return [SimpleNamespace(level=segment.first_level + index) for index in levels]


class _Waits:
    """Lets time pass, and finds out whether a clock that was set stops the pipeline."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._slept_us = self._delay_us = 0

    def begin(self, manifest: Manifest) -> None:
        """An epoch was committed: from now on, the pipeline waits for the next one."""
        self._slept_us = 0
        self._delay_us = max(0, (manifest.next_clock_us or 0) - manifest.clock_us)

    def sleep(self, seconds: float) -> None:
        duration_us = round(seconds * 1e6)
        self._slept_us += duration_us
        # The least time between two epochs is waited for, too, whatever the clock says.
        most_us = _SLOWNESS * self._delay_us + _INTERVAL_US
        assert self._slept_us <= most_us, "a clock that was set stops the pipeline"
        self._driver.world.sleep(duration_us)
        self._driver.pause()


class _Observer:
    """Counts elements in place of metrics."""

    def __init__(self, driver: Driver, waits: _Waits) -> None:
        self._driver, self._waits = driver, waits

    def continues(self, manifest: Manifest) -> None:
        pass

    def merged(self, before: Sequence[bytes], infos: Sequence[bytes]) -> tuple[bytes, ...]:
        emitted = [
            len(each.output.emitted)
            for each in self._driver.tasks.values()
            if each.output is not None
        ]
        return (b"%d" % (sum(map(int, before)) + sum(emitted)),)

    def committed(self, manifest: Manifest) -> None:
        self._waits.begin(manifest)

    def took(self, manifest: Manifest, reports: Sequence[Report], took: Any) -> None:
        self._driver.world.note_won(self._driver, manifest)
