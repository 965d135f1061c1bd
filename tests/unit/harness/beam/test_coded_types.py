"""Beam keeps the bytes of classes, and one job's must not be the next one's."""

import pickle
from typing import NamedTuple

import pytest
from apache_beam.coders import coders

from beam_spark_runner.harness.beam.coded_types import CodedTypes

CLOUDPICKLED = coders.DeterministicFastPrimitivesCoderV2(coders.FastPrimitivesCoder(), "")
DILLED = coders.DeterministicFastPrimitivesCoder(coders.FastPrimitivesCoder(), "")


class Point(NamedTuple):
    x: int


def test_a_class_is_coded_as_the_job_asks() -> None:
    pytest.importorskip("dill", reason="the test extra installs it")
    types = CodedTypes()
    types.serve("one job")
    first = CLOUDPICKLED.encode(Point(1))
    types.serve("one job")
    assert DILLED.encode(Point(1)) == first, "what Beam does, the reason for all this"
    types.serve("another job")
    coded = DILLED.encode(Point(1))
    assert coded != first
    types.serve("a third job")
    assert DILLED.decode(coded) == Point(1), "without the bytes of the first job"
    with pytest.raises(pickle.UnpicklingError):
        DILLED.decode(first)
