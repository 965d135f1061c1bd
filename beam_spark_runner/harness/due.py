"""Fires timers and panes that are due in a streaming stage, key by key."""

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
    """Advance each key that has timers or panes due. Those in processing time always fire.

    Args:
        store: The stage's records in the shard.
        now: Watermark and processing time of the epoch: timers and panes are due until then.
        fire: Fires the timers of an owner and a key, see ``StoredState.due``, and counts them
            for the interruption. The key is encoded, nested.
        interruption: Decides when timers and panes of event time remain unfired; None: never.
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
