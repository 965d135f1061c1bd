"""A memory profile of a process, with and without memray."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from beam_spark_runner.engine.worker.memory_profile import memory_profile


def test_without_memray_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "memray", None)
    size, missing = memory_profile().splitlines()
    assert size.startswith("The process has ")
    assert "pip install memray" in missing


class Memray:
    """Stands in for memray, which is no dependency of this package's tests."""

    def __init__(self, path: Any) -> None: ...

    def __enter__(self) -> "Memray":
        return self

    def __exit__(self, *error: object) -> None: ...

    def get_high_watermark_allocation_records(self, *, merge_threads: bool) -> Any:
        for size in (1_000_000, 9_000_000):
            frames = [("parse", "shop.py", size // 1_000_000)]
            yield SimpleNamespace(
                size=size, n_allocations=3, stack_trace=lambda count, frames=frames: frames
            )


def test_the_largest_places_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "memray", SimpleNamespace(Tracker=Memray, FileReader=Memray))
    _, total, first, second = memory_profile(0).splitlines()
    assert "10.0 MB, by 2 places" in total
    assert first.split() == ["9.0", "MB", "3", "times", "parse", "(shop.py:9)"]
    assert second.endswith("parse (shop.py:1)")


def test_only_one_profile_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Any) -> Any:
        raise RuntimeError("No more than one Tracker instance can be active at the same time")

    monkeypatch.setitem(sys.modules, "memray", SimpleNamespace(Tracker=refuse))
    assert "There is no profile: No more than one Tracker" in memory_profile(0)
