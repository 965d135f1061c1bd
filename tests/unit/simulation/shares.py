"""How many steps the tests of the simulation take: ``SIMULATION_STEPS``, all of them together."""

import os

_ALL = int(os.environ.get("SIMULATION_STEPS", "40000"))

SCHEDULES = _ALL * 14 // 40
DRAWN = _ALL * 6 // 40
BATCH_SCHEDULES = _ALL * 17 // 40
BATCH_DRAWN = _ALL * 3 // 40
BATCH_RECOVERED = _ALL // 2


def timeout_s(steps: int) -> int:
    """Return how long a test of so many steps may take."""
    return 600 + steps // 20
