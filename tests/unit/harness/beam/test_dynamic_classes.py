"""A class is made once for a job, and again for another one."""

import sys
from types import ModuleType
from typing import Any

import pytest
from apache_beam.internal import cloudpickle_pickler

from beam_spark_runner.harness.beam.dynamic_classes import DynamicClasses


@pytest.fixture(autouse=True)
def classes_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    cloudpickle = cloudpickle_pickler.cloudpickle
    for name in ("_DYNAMIC_CLASS_TRACKER_BY_CLASS", "_DYNAMIC_CLASS_TRACKER_BY_ID"):
        monkeypatch.setattr(cloudpickle, name, getattr(cloudpickle, name))


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    exec("rate = 1\nclass Rated:\n    factor = 1\n    def rate(self): return rate", vars(module))
    return module


def test_each_job_has_the_variables_that_it_was_sent_with(program: Any) -> None:
    first = cloudpickle_pickler.dumps(program.Rated)
    program.rate = program.Rated.factor = 2
    second = cloudpickle_pickler.dumps(program.Rated)
    jobs = DynamicClasses(), DynamicClasses()
    found = []
    for job, coded in ((jobs[0], first), (jobs[1], second), (jobs[0], first)):
        job.serve()
        found.append(cloudpickle_pickler.loads(coded))
    assert [(each.factor, each().rate()) for each in found] == [(1, 1), (2, 2), (1, 1)]
    assert found[0] is found[2], "a job has one class"
