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


@pytest.mark.parametrize("soon", [True, False])
def test_it_goes_on_if_the_next_bundle_begins_soon(
    monkeypatch: pytest.MonkeyPatch, soon: bool
) -> None:
    monkeypatch.setattr(sampling, "_GOES_ON_S", 60 if soon else 0)
    sampler = statesampler.StateSampler("stage", CounterFactory())
    samplings = Sampling(sampler)
    before = set(threading.enumerate())
    first = bundle(sampler, samplings) - before
    assert len(first) == 1
    if not soon:
        assert samplings._ending is not None
        samplings._ending.join()
    second = bundle(sampler, samplings) - before
    assert (first <= second) == soon
    monkeypatch.setattr(sampling, "_GOES_ON_S", 0)
    samplings.prepare()
    sampler.reset()
    samplings.start()
    samplings.end()
    assert samplings._ending is not None
    samplings._ending.join()
    assert set(threading.enumerate()) <= before


def test_one_that_never_started_needs_no_end() -> None:
    samplings = Sampling(statesampler.StateSampler("stage", CounterFactory()))
    samplings.end()
    assert samplings._ending is None
