"""Streaming plans that take several Spark jobs in an epoch, although they are not deep."""

import functools

import pytest

from beam_spark_runner.job import compile as compiling

CUT = """
import functools
from beam_spark_runner.job import compile
compile.build = functools.partial(compile.build, max_exchanges=1)
"""
"""Has a program's pipelines take a Spark job for each exchange."""


def cut_at_each_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the test's pipelines take a Spark job for each exchange."""
    monkeypatch.setattr(compiling, "build", functools.partial(compiling.build, max_exchanges=1))
