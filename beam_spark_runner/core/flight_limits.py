"""How much a declarative step processes at the same time."""

from typing import NamedTuple


class FlightLimits(NamedTuple):
    """How much a step processes at the same time.

    Attributes:
        records: Once as many are in flight, no more are taken.
        size: Likewise, in bytes.
        of_key: The most records of one key that wait in memory. Further ones are in the log.
        batch: The number of requests that are executed together.
        wait_us: How long a request waits for others, if further records come.
        left_size: How much may be left for the next epoch, in bytes.
    """

    records: int = 6_000
    size: int = 64 << 20
    of_key: int = 64
    batch: int = 1_000
    wait_us: int = 1_000_000
    left_size: int = 64 << 20


FLIGHT_LIMITS = FlightLimits()
"""The defaults of the options."""
