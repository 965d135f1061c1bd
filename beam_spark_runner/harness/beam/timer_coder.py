"""Beam's coder of timers, which has no public constructor."""

from apache_beam.coders import Coder
from apache_beam.coders.coders import _TimerCoder


def timer_coder(key_coder: Coder, window_coder: Coder) -> Coder:
    """Return the coder of timers with keys and windows of the given coders."""
    return _TimerCoder(key_coder, window_coder)
