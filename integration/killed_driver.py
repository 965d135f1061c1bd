"""The program that ``test_streams_killed`` kills; its environment says when and where."""

import enum
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam

from integration.left_reads import InFlight
from integration.pipelines import counters
from integration.stream_kills import IN_TASKS, Driving, StreamStrikes, die_at
from integration.streams import KEYS, SINK, played, sources_to_files
from integration.strikes import DRIVER_PID, Event, Strikes, Victim
from tests.numbers_source import Log, Numbers, pairs
from tests.spark.asking import Asking

PLACES = 3
_IN_TASKS = {each.name: each for each in IN_TASKS}


class Kind(enum.Enum):
    """What runs: see ``sources_to_files``."""

    SOURCES = "splittable DoFns"
    PLAYED = "a TestStream, and a splittable DoFn"
    READERS = "readers of an UnboundedSource with checkpoint marks, and a splittable DoFn"
    CUT = "splittable DoFns, and a Spark job for each exchange"  # the program sees to that


class Orders(NamedTuple):
    """What becomes of a run, and of which pipeline.

    Attributes:
        moment: name of the event at which it dies; empty: at none.
        place: which of the strikes of ``sources_to_files`` that is, of an event in a task.
        nth: how many elements the task has had, or how often the driver has come to it; without
            meaning for events of ``InFlight``.
        numbers: of each source, see ``sources_to_files``.
        kind: name of that of the pipeline.
        out: the folder of the sink.
        notes: that of readers, see ``Log``.
        checkpoints: the checkpoint folder.
        is_declared: whether the pipeline has a declarative step.
        left: see ``KnowsNumbers``.
    """

    moment: str
    place: int
    nth: int
    numbers: int
    kind: str
    out: str
    notes: str
    checkpoints: str
    is_declared: bool = False
    left: str = ""


def main(options: Sequence[str], orders: Orders) -> None:
    """Run the pipeline; die, or print the committed counters."""
    os.environ[DRIVER_PID] = str(os.getpid())  # Spark's workers have it from here
    if orders.moment in Driving.__members__:
        die_at(Driving[orders.moment], orders.nth)
    event, mine = _IN_TASKS.get(orders.moment, Event.START), str(Path("struck").absolute())
    is_in_task = orders.moment in _IN_TASKS
    strikes = [
        # Elsewhere the deed is done: the file exists.
        StreamStrikes(
            mine if is_in_task and each == orders.place else os.devnull,
            event,
            Victim.DRIVER,
            orders.nth if each == 0 else 1,  # later steps get one element in a bundle
        )
        for each in range(PLACES)
    ]
    in_flight = [
        Strikes(mine, each, Victim.DRIVER) for each in InFlight if each.name == orders.moment
    ]
    pipeline = beam.Pipeline(runner=Asking(None, stable=[SINK]), argv=[*options])
    sources_to_files(
        pipeline,
        orders.numbers,
        orders.out,
        strikes,
        pairs=_pairs(orders),
        is_declared=orders.is_declared,
        left=orders.left,
        in_flight=in_flight,
    )
    result = pipeline.run()
    result.wait_until_finish()
    print(counters(result))


def _pairs(orders: Orders) -> Callable[[beam.Pipeline], Any] | None:
    match Kind[orders.kind]:
        case Kind.PLAYED:
            return played(orders.numbers)
        case Kind.READERS:
            source = Numbers(
                name="key ",
                end=orders.numbers,
                at_once=3,
                splits=KEYS,
                ends_with_its_last=True,
                first_s=0,
                log=Log(folder=orders.notes, checkpoints=orders.checkpoints),
            )
            return pairs(source, most_in_bundle=2)
        case Kind.SOURCES | Kind.CUT:
            return None
