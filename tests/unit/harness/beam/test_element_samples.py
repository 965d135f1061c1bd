"""Samples of elements, for people who look at a job."""

from typing import Any

import pytest
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.utils.windowed_value import create

from beam_spark_runner.harness.beam.element_samples import ElementSamples, samples_of


def redact(element: Any) -> Any:
    """What a user has written."""
    return {**element, "card": "…"}


def samples(keeps: ElementSamples | None, *elements: Any) -> list[str]:
    """Emit elements as Beam's receivers do; return what is shown."""
    assert keeps is not None
    descriptor = beam_fn_api_pb2.ProcessBundleDescriptor()
    descriptor.transforms["step"].outputs["out"] = "collection"
    keeps.initialize_samplers("step", descriptor, None)
    output = keeps.sampler_for_output("step", 0)
    for element in elements:
        if not output.element_sampler.has_element:
            output.element_sampler.el = create(element, 0, ())
            output.element_sampler.has_element = True
    taken = keeps.take()
    assert not keeps.take()
    return [*taken.values()]


def options(redaction: str | None = None) -> dict[str, Any]:
    return {"experiments": ["other", "enable_data_sampling"], "sample_redaction": redaction}


@pytest.mark.parametrize("given", [{}, {"experiments": None}, {"experiments": ["other"]}])
def test_nothing_is_sampled_unless_the_job_asks_for_it(given: dict[str, Any]) -> None:
    assert samples_of(given) is None


def test_an_element_is_shown_until_the_next_one_is_taken() -> None:
    assert samples(samples_of(options()), "first", "second") == ["'first'"]
    assert samples(samples_of(options())) == []


def test_what_a_function_redacts() -> None:
    keeps = samples_of(options(f"{__name__}:redact"))
    assert samples(keeps, {"name": "x", "card": "4111"}) == ["{'card': '…', 'name': 'x'}"]


def test_a_function_that_fails_or_is_missing_shows_nothing() -> None:
    (text,) = samples(samples_of(options(f"{__name__}:redact")), "4111")
    assert text == "not shown: the function of --sample_redaction raised TypeError"
    (text,) = samples(samples_of(options("nowhere.at.all:redact")), "4111")
    assert "cannot be imported: No module named 'nowhere'" in text
