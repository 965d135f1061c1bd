"""Runs random walks until everything has happened in them that they are for."""

import random
from collections import Counter
from collections.abc import Callable

_MAX_WALKS = 200


def walk_until(wanted: frozenset[str], at_least: int, run: Callable[[int], "Counter[str]"]) -> None:
    """Run walks with random seeds.

    Args:
        wanted: What has to happen in one of them.
        at_least: The least number of walks.
        run: Runs a walk with a seed; returns what has happened in it.
    """
    seen: Counter[str] = Counter()
    walks = 0
    while walks < at_least or not wanted <= seen.keys():
        walks += 1
        assert walks < _MAX_WALKS, seen
        seed = random.randrange(1 << 32)
        try:
            seen += run(seed)
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error
