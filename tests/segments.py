"""Streaming plans that take several Spark jobs in an epoch, although they are not deep."""

import functools

import pytest

from beam_spark_runner.plan.build import build

CUT = """
import functools
from beam_spark_runner.job.prepare import compile
compile.build = functools.partial(compile.build, max_exchanges=1)
"""
"""Has a program's pipelines take a Spark job for each exchange."""


def cut_at_each_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the test's pipelines take a Spark job for each exchange."""
    cut = functools.partial(build, max_exchanges=1)
    monkeypatch.setattr("beam_spark_runner.job.prepare.compile.build", cut)
