"""Key policies: what happens to a key after a bundle has processed its elements."""

from dataclasses import dataclass, field

from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.lateness import LateElements
from beam_spark_runner.semantics.timer_loops import TimerLoops
from beam_spark_runner.semantics.timers import END_OF_TIME, Instant
from beam_spark_runner.state.backend import StateBackend


@dataclass(frozen=True, slots=True)
class KeyPolicy:
    """The time of the key advances; then its state and its timers are dropped, or stored.

    Attributes:
        to: how far time advances. All timers that are due until then fire.
        store: where a later bundle finds what is left of the key; None: it is dropped.
        watermark_us: of the input, while elements arrive. Those of windows that are over by then
            are dropped.
        clock_us: processing time while elements arrive; None: the wall clock's. User code that
            sets timers reads the wall clock all the same.
        interruption: when timers that are due remain set; None: all of them fire.
        late: counts the elements that are dropped. Without a store, none are.
        loops: notices timers that go on for ever; None: nobody wants to know.
    """

    to: Instant
    store: StateBackend | None = None
    watermark_us: int = MIN_US
    clock_us: int | None = None
    interruption: Interruption | None = None
    late: LateElements = field(default_factory=LateElements)
    loops: TimerLoops | None = None


BATCH = KeyPolicy(END_OF_TIME)
"""The bundle has all elements of each key. When they are processed, its time runs to the end."""
