"""Firing what is due in a stage whose keys outlive the epoch, key by key."""

from collections.abc import Callable

from beam_spark_runner.harness.waiting import WAITING
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.timers import NEVER_US, Instant
from beam_spark_runner.state.store import StoredState


def fire_due(
    store: StoredState,
    now: Instant,
    fire: Callable[[bytes], None],
    interruption: Interruption | None = None,
    *,
    one_by_one: bool = False,
) -> None:
    """Advance each key that has something due. What waits for a clock is not interrupted.

    Args:
        store: of the stage.
        now: until which timers and panes are due.
        fire: advances a key, which is encoded, nested.
        interruption: when keys remain due; None: never.
        one_by_one: a key counts as one timer; else ``fire`` counts those that it fires.
    """
    for _, key in store.due(NEVER_US, now.clock_us):
        fire(key)
    for owner, key in store.due(now.watermark_us, NEVER_US):
        if owner == WAITING:
            continue
        if interruption is not None and interruption.is_over():
            interruption.was_interrupted = True
            return
        fire(key)
        if interruption is not None and one_by_one:
            interruption.fired()
