"""The simulated pipeline, and a task of one of its levels."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from apache_beam.transforms.core import Windowing

from beam_spark_runner.core.ids import DestinationId, PCollectionId, SegmentId, StageId
from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.plan.compatibility import StoredStage
from beam_spark_runner.plan.model import Delivery, Destination, Level, Plan, Segment, Stage
from beam_spark_runner.recovery.migration import PipelineVersion
from beam_spark_runner.scheduling.finish import Finishing
from beam_spark_runner.scheduling.test_stream_events import Event
from beam_spark_runner.semantics import watermarks
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.timers import Instant
from beam_spark_runner.state.store import StoredState
from tests.golden.notation import parse
from tests.unit.simulation import looked
from tests.unit.simulation.elements import (
    COUNTED,
    GROUPED,
    LEVELS,
    LOOKED,
    SOURCE,
    TOTALS,
    TaskInput,
    TaskOutput,
)
from tests.unit.simulation.sources import Sources
from tests.unit.simulation.stages import Grouping, by_key, run_counter, run_grouping, run_sources
from tests.unit.simulation.tables import STEP

PARTITIONS = 2
"""At first."""
_READS = {SOURCE: "nothing", GROUPED: "read", COUNTED: "read", LOOKED: "read", TOTALS: "counted"}
TAG = "main"
BUDGET_US = 500_000


def finishing(partitions: int) -> Finishing:
    """Return the rules by which the pipeline's stages finish."""
    return Finishing(plan(), partitions)


@functools.cache
def plan() -> Plan:
    """Return the plan of the pipeline, as far as the driver looks at it."""
    collections = [PCollectionId(each) for each in ("nothing", "read", "counted")]
    stages = {
        StageId(stage): Stage(
            id=StageId(stage),
            name=f"stage {stage}",
            transforms=(),
            input=PCollectionId(reads),
            outputs=tuple(collections[level + 1 : level + 2]),
            environment=None,
        )
        for level, numbers in LEVELS.items()
        for stage, reads in ((number, _READS[number]) for number in numbers)
    }
    destinations = {
        DestinationId(id_): Destination(
            id=DestinationId(id_),
            delivery=Delivery.BY_KEY,
            arriving=stage.input,
            stage=id_,
            name=stage.name,
        )
        for id_, stage in stages.items()
    }
    segment = Segment(
        id=SegmentId(0),
        levels=tuple(
            Level(has_exchange=True, stages=tuple(map(StageId, numbers)))
            for numbers in LEVELS.values()
        ),
        reads={},
        writes={},
    )
    return Plan(
        graph=parse(""),
        stages=stages,
        destinations=destinations,
        consumers={
            collection: tuple(
                id_ for id_, each in destinations.items() if each.arriving == collection
            )
            for collection in collections
        },
        segments=(segment,),
        is_streaming=True,
    )


@dataclass(frozen=True)
class Pipeline:
    """What is the same for all drivers.

    Attributes:
        sources: what there is to read; without a TestStream.
        grouping: of the first grouping.
        totals: of the second one.
        events: of the TestStream; None: there is none.
        is_slow: firing takes so long that epochs are interrupted.
    """

    sources: Sources
    grouping: Windowing
    totals: Windowing
    events: Sequence[Event] | None = None
    is_slow: bool = False

    @property
    def has_no_late_elements(self) -> bool:
        """Whether what is read is never behind the watermark."""
        return self.events is None and not self.sources.most_late_us

    @cached_property
    def transforms(self) -> Mapping[int, str]:
        """The ids of steps with state, by stage."""
        return {COUNTED: "counter"} | ({LOOKED: looked.transform()} if self.looks_up else {})

    @property
    def looks_up(self) -> bool:
        """Whether the declarative step has input."""
        return LOOKED in self.sources.dests

    @cached_property
    def groupings(self) -> Mapping[int, Grouping]:
        """By stage."""
        return {GROUPED: Grouping(GROUPED, self.grouping), TOTALS: Grouping(TOTALS, self.totals)}

    @cached_property
    def version(self) -> PipelineVersion:
        """Where it stores what."""
        return PipelineVersion(
            tables=frozenset({STEP}),
            plan={
                f"step {stage}": StoredStage(
                    stage=stage,
                    level=level,
                    is_exchanged=True,
                    dest=stage,
                    is_fed=stage == SOURCE,
                    transform=self.transforms.get(stage, ""),
                    kept="something" if stores(self, level) else "",
                )
                for level, numbers in LEVELS.items()
                for stage in numbers
            },
            steps={},
        )

    def interruption(self, random: Random) -> Interruption:
        """Return when the firing of a stage ends: what a timer takes, the attempt draws."""
        spent_us = 0

        def spend() -> int:
            nonlocal spent_us
            spent_us += random.randrange(BUDGET_US)
            return spent_us

        return Interruption(spend if self.is_slow else lambda: 0, BUDGET_US, 1)


def instants(task: TaskInput, dest: int) -> tuple[Instant, Instant]:
    """Return until when a stage came before, and until when it comes in this epoch."""
    before_us, arriving_us = task.before_us.get(dest, MIN_US), task.arriving_us.get(dest, MAX_US)
    return watermarks.advance_of(before_us, arriving_us, task.clock_us)


def run_task(
    pipeline: Pipeline,
    level: int,
    stores_of: Callable[[int], Sequence[StoredState]] | None,
    task: TaskInput,
    attempt: int,
) -> TaskOutput:
    """Run the stages of a level over the input and over what the shard has.

    Args:
        pipeline: which.
        level: of it.
        stores_of: returns what is stored of a stage, that of its keys is the last; None: nothing of
            the level is stored.
        task: its input.
        attempt: decides what one attempt does in another way than another one.
    """
    output, random = TaskOutput(), Random(attempt)
    for stage in LEVELS[level]:
        rows = [row for row in task.rows if row.dest == stage]
        before, now = instants(task, stage)
        output.inputs_us[stage] = now.watermark_us
        if stores_of is None:
            output.rows += task.rows
            if now.watermark_us == MAX_US:
                output.finished.add(stage)
            _send_watermark(output, level, now.watermark_us)
            continue
        stored = stores_of(stage)
        store, is_finished = stored[-1], True
        interruption = pipeline.interruption(random)
        if stage == SOURCE:
            run_sources(store, task, pipeline.sources, attempt, output)
        elif stage == COUNTED:
            output.advances[stage] = run_counter(store, before, now, rows, interruption, output)
        elif stage == LOOKED:
            if pipeline.looks_up:
                is_finished = looked.run_looked(
                    stored[0],
                    store,
                    before,
                    now,
                    by_key(rows),
                    interruption,
                    output,
                    leaves=random.random() < 0.7,
                )
        else:
            grouping = pipeline.groupings[stage]
            output.advances[stage] = run_grouping(
                grouping, store, before, now, rows, interruption, output
            )
        was_interrupted = interruption.was_interrupted or not is_finished
        output.was_interrupted |= was_interrupted
        if now.watermark_us == MAX_US and all(each.is_empty() for each in stored):
            output.finished.add(stage)
        events, clocks = zip(*(each.next_due() for each in stored), strict=True)
        event_us = min((each for each in events if each is not None), default=None)
        output.note_due(event_us, min((each for each in clocks if each is not None), default=None))
        left_due_us = event_us if was_interrupted else None
        holds = [hold for each in stored if (hold := each.least_hold()) is not None]
        _send_watermark(
            output,
            level,
            watermarks.output_us(now.watermark_us, min(holds, default=None), left_due_us),
        )
    return output


def _send_watermark(output: TaskOutput, level: int, watermark_us: int) -> None:
    for dest in LEVELS.get(level + 1, ()):
        output.outputs_us[dest] = min(output.outputs_us.get(dest, MAX_US), watermark_us)


def stores(pipeline: Pipeline, level: int) -> bool:
    """Whether the tasks of a level have shards."""
    return level > 0 or pipeline.events is None
