"""The metrics of a run."""

from collections.abc import Iterable

import pytest
from apache_beam.metrics import monitoring_infos

from beam_spark_runner.driving import run_context
from beam_spark_runner.driving.run_context import RunMetrics
from beam_spark_runner.portable.monitoring import merge


def counted(name: str, value: int) -> bytes:
    coded: bytes = monitoring_infos.int64_user_counter("test", name, value).SerializeToString()
    return coded


def test_what_was_merged_last_is_not_merged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempted metrics of an epoch are also its committed ones, unless something failed."""
    merges: list[int] = []

    def counting(infos: Iterable[bytes], dropped: object) -> tuple[bytes, ...]:
        merges.append(1)
        return merge(infos)

    monkeypatch.setattr(run_context, "merge", counting)
    tally = RunMetrics()
    infos = [counted("a", 1), counted("a", 2), counted("b", 4)]
    assert tally.merged(infos) == tally.merged(iter(infos)) == merge(infos)
    assert len(merges) == 1
    assert tally.merged(infos[:1]) == merge(infos[:1])
    assert len(merges) == 2
