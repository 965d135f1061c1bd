"""``--sample_redaction``."""

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.options import RunnerConfig

ON = "--experiments=enable_data_sampling"


def given(*flags: str) -> str | None:
    return RunnerConfig.from_options(PipelineOptions([*flags])).sample_redaction


def test_a_function_of_a_module() -> None:
    assert given(ON, "--sample_redaction=shop.privacy:redact") == "shop.privacy:redact"
    assert given(ON) is None


@pytest.mark.parametrize("text", ["redact", "shop:", ":redact", "shop/x:redact", "shop:a.b"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(OptionsError, match="sample_redaction"):
        given(ON, f"--sample_redaction={text}")


def test_it_has_no_effect_without_samples() -> None:
    with pytest.raises(OptionsError, match="enable_data_sampling"):
        given("--sample_redaction=shop:redact")
