"""How many examples Hypothesis draws: some in ``make test``, all in ``make integration``."""

import os

HAS_ALL = "ALL_EXAMPLES" in os.environ


def examples(count: int) -> int:
    """Return how many of ``count`` examples are drawn; each run draws others."""
    return count if HAS_ALL else max(1, count // 4)
