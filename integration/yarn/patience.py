"""Waiting for what YARN does, which starts several processes for each program."""

import functools

from integration import waiting

# Each look at YARN or at all processes of the machine costs some milliseconds.
wait_until = functools.partial(waiting.wait_until, timeout_s=900.0, poll_s=0.3)
