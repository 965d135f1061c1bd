"""The sampler's thread, from bundle to bundle."""

import threading

import pytest
from apache_beam.runners.worker import statesampler
from apache_beam.utils.counters import CounterFactory

from beam_spark_runner.harness.beam import sampling
from beam_spark_runner.harness.beam.sampling import Sampling


def bundle(sampler: statesampler.StateSampler, samplings: Sampling) -> set[threading.Thread]:
    """Run one, and return the threads that are there meanwhile."""
    samplings.prepare()
    sampler.reset()
    samplings.start()
    assert statesampler.get_current_tracker() is sampler
    threads = set(threading.enumerate())
    samplings.end()
    assert statesampler.get_current_tracker() is None
    samplings.end()  # a bundle may be aborted after its end
    return threads


def threads_besides(before: set[threading.Thread]) -> set[threading.Thread]:
    return set(threading.enumerate()) - before


def until_stopped(samplings: Sampling) -> None:
    if (watching := samplings._watching) is not None:
        watching.join()


@pytest.mark.parametrize("soon", [True, False])
def test_it_continues_if_the_next_bundle_begins_soon(
    monkeypatch: pytest.MonkeyPatch, soon: bool
) -> None:
    monkeypatch.setattr(sampling, "_LINGERS_S", 60 if soon else 0.001)
    sampler = statesampler.StateSampler("stage", CounterFactory())
    samplings = Sampling(sampler)
    before = set(threading.enumerate())
    first = bundle(sampler, samplings) - before
    assert len(first) == 1
    if not soon:
        until_stopped(samplings)
        assert not threads_besides(before)
    second = bundle(sampler, samplings) - before
    assert (first <= second) == soon
    if soon:
        third = bundle(sampler, samplings) - before
        assert third == second  # nothing was started for it
        monkeypatch.setattr(sampling, "_LINGERS_S", 0)
        with samplings._changed:
            samplings._changed.notify_all()
    until_stopped(samplings)
    assert not threads_besides(before)


def test_a_bundle_that_comes_while_it_stops_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_LINGERS_S", 0)
    sampler = statesampler.StateSampler("stage", CounterFactory())
    samplings = Sampling(sampler)
    before = set(threading.enumerate())
    for _ in range(200):
        bundle(sampler, samplings)
    until_stopped(samplings)
    assert not threads_besides(before)


def test_it_is_not_stopped_during_a_long_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = statesampler.StateSampler("stage", CounterFactory())
    samplings = Sampling(sampler)
    bundle(sampler, samplings)
    samplings.prepare()
    sampler.reset()
    samplings.start()
    rest_s, looks = samplings._rest_s, threading.Semaphore(0)

    def look() -> float:
        looks.release()
        return rest_s()

    monkeypatch.setattr(samplings, "_rest_s", look)
    monkeypatch.setattr(sampling, "_LINGERS_S", 0.001)
    for _ in range(3):
        with samplings._changed:
            samplings._changed.notify_all()
        assert looks.acquire(timeout=60)
    assert sampler.started
    assert not sampler.finished
    samplings.end()
    until_stopped(samplings)


def test_one_that_never_started_needs_no_end() -> None:
    samplings = Sampling(statesampler.StateSampler("stage", CounterFactory()))
    samplings.end()
    assert samplings._watching is None
