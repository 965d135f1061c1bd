"""The program that ``test_migrations_killed`` kills: two versions of a pipeline."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import apache_beam as beam

from integration.killed_driver import PLACES
from integration.migration_kills import IN_MIGRATIONS, driver_dies_at
from integration.pipelines import counters
from integration.stream_kills import Driving, die_at
from integration.streams import SINK, sources_to_files
from integration.strikes import DRIVER_PID, Event, Strikes, Victim
from tests.spark.asking import Asking

_IN_MIGRATIONS = {each.name: each for each in IN_MIGRATIONS}


class Orders(NamedTuple):
    """What becomes of a run, and of which version.

    Attributes:
        moment: name of the event at which it dies; empty: at none.
        nth: how often the driver has come to it, if it is one of ``Driving``.
        is_changed: which version of the pipeline, see ``sources_to_files``.
        numbers: of each source, see there.
        out: the folder of the sink.
    """

    moment: str
    nth: int
    is_changed: bool
    numbers: int
    out: str


def main(options: Sequence[str], orders: Orders) -> None:
    """Run the pipeline; die, or print the committed counters."""
    os.environ[DRIVER_PID] = str(os.getpid())  # Spark's workers have it from here
    if orders.moment in Driving.__members__:
        die_at(Driving[orders.moment], orders.nth)
    elif orders.moment:
        driver_dies_at(_IN_MIGRATIONS[orders.moment], str(Path("struck").absolute()))
    pipeline = beam.Pipeline(runner=Asking(None, stable=[SINK]), argv=[*options])
    # The deed is done: the file exists.
    nothing = [Strikes(os.devnull, Event.START, Victim.DRIVER) for _ in range(PLACES)]
    sources_to_files(pipeline, orders.numbers, orders.out, nothing, is_changed=orders.is_changed)
    result = pipeline.run()
    result.wait_until_finish()
    print(counters(result))
