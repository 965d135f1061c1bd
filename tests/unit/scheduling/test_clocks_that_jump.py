"""A driver whose clock is set, forwards and back: what is due continues, time never goes back."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.scheduling.epochs import Progress, next_timed_epoch, wait_us

SECOND_US = 1_000_000
EPOCH_US = 50_000
JUMPS = st.lists(
    st.tuples(st.integers(1, 40), st.integers(-3600, 3600).map(lambda s: s * SECOND_US)),
    max_size=6,
)


@given(JUMPS, st.sampled_from([0, 3_000, 100_000]))
def test_a_source_is_asked_again_soon(jumps: Sequence[tuple[int, int]], delay_us: int) -> None:
    """Ten times its delay later at most, whatever the clock of the machine does.

    Args:
        jumps: after how many epochs the clock is set, and by how much.
        delay_us: how long after the beginning of an epoch its source is due again.
    """
    real_us = skew_us = 0
    base_us = 10**15
    progress = Progress(epoch=1, clock_us=base_us, next_clock_us=base_us + delay_us)
    for epochs, skew in [*jumps, (5, 0)]:
        for _ in range(epochs):
            began_us = real_us
            real_us += EPOCH_US
            while True:
                now_us = base_us + real_us + skew_us
                epoch = next_timed_epoch(progress, now_us)
                assert epoch is not None
                passed_us = real_us - began_us
                left_us = wait_us(progress, epoch, now_us, 0, passed_us=passed_us)
                if not left_us:
                    break
                real_us += left_us
            assert epoch.clock_us >= progress.clock_us
            assert epoch.clock_us >= (progress.next_clock_us or 0)
            assert real_us - began_us <= max(EPOCH_US, 10 * delay_us)
            progress = Progress(
                epoch=epoch.number,
                clock_us=epoch.clock_us,
                next_clock_us=epoch.clock_us + delay_us,
            )
        skew_us = skew
