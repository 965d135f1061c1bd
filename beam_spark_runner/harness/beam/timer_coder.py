"""Beam's coder of timers, which it builds only from a proto or from a name of its own."""

from apache_beam.coders import Coder
from apache_beam.coders.coders import _TimerCoder


def timer_coder(key_coder: Coder, window_coder: Coder) -> Coder:
    """Return the coder of timers that have keys and windows of these coders."""
    return _TimerCoder(key_coder, window_coder)
