"""Key policies: what happens to a key after its elements have been processed."""

from dataclasses import dataclass, field

from beam_spark_runner.core.flight_limits import FLIGHT_LIMITS, FlightLimits
from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.lateness import LateElements
from beam_spark_runner.semantics.timer_loops import TimerLoops
from beam_spark_runner.semantics.timers import END_OF_TIME, DroppedTimers, Instant
from beam_spark_runner.state.backend import StateBackend


@dataclass(frozen=True, slots=True)
class KeyPolicy:
    """The time of the key advances; then its state and its timers are dropped, or stored.

    Attributes:
        to: The instant to which time advances. All timers that are due until then fire.
        store: The backend that stores the key's state and timers; None: they are dropped.
        watermark_us: The input watermark while elements arrive. Elements whose windows have
            expired by then are dropped.
        clock_us: The processing time while elements arrive; None: the wall clock's. User code
            that sets timers always reads the wall clock.
        interruption: Decides when due timers are left for later; None: all of them fire.
        late: Counts the dropped elements. Without a store, none are dropped.
        dropped: Counts the processing-time timers that are dropped because the pipeline is
            drained; None: it is not, and none are dropped. See ``TimerQueue``.
        in_flight: How much a declarative step processes at the same time.
        leaves_after_us: How long it finishes what is in flight at the end of the bundle; then it
            leaves the rest for a later one. None: it finishes everything.
        loops: Notices timers that set themselves again forever; None: no such check.
    """

    to: Instant
    store: StateBackend | None = None
    watermark_us: int = MIN_US
    clock_us: int | None = None
    interruption: Interruption | None = None
    late: LateElements = field(default_factory=LateElements)
    dropped: DroppedTimers | None = None
    loops: TimerLoops | None = None
    in_flight: FlightLimits = FLIGHT_LIMITS
    leaves_after_us: int | None = None


BATCH = KeyPolicy(END_OF_TIME)
"""All elements of a key are in one bundle; after them, its time advances to the end of time."""
