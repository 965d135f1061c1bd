"""Firing what is due in a stage whose keys outlive the epoch, one by one."""

from collections.abc import Callable

from beam_spark_runner.harness.waiting import WAITING
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.timers import NEVER_US, Instant
from beam_spark_runner.state.store import StoredState


def fire_due(
    store: StoredState,
    now: Instant,
    fire: Callable[[str, bytes], None],
    interruption: Interruption | None = None,
) -> None:
    """Advance each key that has something due. What waits for a clock is not interrupted.

    Args:
        store: of the stage.
        now: until which timers and panes are due.
        fire: fires what an owner has of a key, which is encoded, nested, and counts that: see
            ``StoredState.due``.
        interruption: when some remain due; None: never.
    """
    for owner, key in store.due(NEVER_US, now.clock_us):
        fire(owner, key)
    for owner, key in store.due(now.watermark_us, NEVER_US):
        if owner == WAITING:
            continue
        if interruption is not None and interruption.is_over():
            interruption.was_interrupted = True
            return
        fire(owner, key)
