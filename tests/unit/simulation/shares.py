"""How many steps the tests of the simulation take: ``SIMULATION_STEPS``, all of them together."""

import os

_ALL = int(os.environ.get("SIMULATION_STEPS", "50000"))

SCHEDULES = _ALL * 14 // 50
WITH_RECORDS_LEFT = _ALL * 4 // 50  # in addition
DRAWN = _ALL * 6 // 50
BATCH_SCHEDULES = _ALL * 17 // 50
BATCH_DRAWN = _ALL * 3 // 50
BATCH_RECOVERED = _ALL * 10 // 50


def timeout_s(steps: int) -> int:
    """Return how long a test of so many steps may take."""
    return 600 + steps // 20
