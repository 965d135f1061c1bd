"""Requests for stacks, which some workers answer late or never."""

from beam_spark_runner.job.run.stacks_asked import StacksAsked


def test_workers_that_have_answered_and_one_that_has_not() -> None:
    asked = StacksAsked()
    request = asked.begin()
    asked.answered("b", request, "in Sum")
    asked.answered("a", request, "")
    assert asked.wait(request, ["a", "b"], timeout_s=60) == {"a": "", "b": "in Sum"}
    other = asked.begin()
    asked.answered("a", request, "too late, for the first request")
    assert asked.wait(other, ["a"], timeout_s=0) == {"a": None}
