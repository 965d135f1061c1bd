"""Which steps with resource hints share a resource profile of Spark."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

from beam_spark_runner.graph.resources import Resources
from beam_spark_runner.spark.session import resource_profiles
from beam_spark_runner.spark.session.resource_profiles import ResourceProfiles
from beam_spark_runner.spark.versions import SparkVersion


class Builder:
    """Stands for Spark's, which needs a JVM: each profile has a separate number."""

    def __init__(self) -> None:
        self.build = SimpleNamespace(id=id(self), builder=self)

    def require(self, _: object) -> "Builder":
        return self


@pytest.fixture
def profiles(monkeypatch: pytest.MonkeyPatch) -> ResourceProfiles:
    monkeypatch.setattr(resource_profiles, "ResourceProfileBuilder", Builder)
    handle: Any = SimpleNamespace(
        is_local=False,
        version=SparkVersion(4, 0),
        spark=SimpleNamespace(conf={}),
        can_grow=lambda: True,
    )
    return ResourceProfiles(handle)


def test_steps_that_need_the_same_share_a_profile(profiles: ResourceProfiles) -> None:
    first = profiles.profile_for(Resources(cpus=2, steps=("a",)))
    assert first is not None
    assert profiles.profile_for(Resources(cpus=2, steps=("b", "c"))) is first
    assert profiles.profile_for(Resources(cpus=2, steps=("d",), problems=("min_ram: ?",))) is first
    other = profiles.profile_for(Resources(cpus=3, steps=("a",)))
    assert other is not first
    assert other is not None


def test_a_problem_is_logged_once_for_each_step(
    profiles: ResourceProfiles, caplog: pytest.LogCaptureFixture
) -> None:
    for steps in (("a",), ("a", "b"), ("c", "d"), ("d",), ("a", "c")):
        assert profiles.profile_for(Resources(steps=steps, problems=("min_ram: ?",))) is None
    named = [re.findall(r"of (.*) has no effect: min_ram: \?", text) for text in caplog.messages]
    assert named == [["a"], ["b"], ["c, d"]]
