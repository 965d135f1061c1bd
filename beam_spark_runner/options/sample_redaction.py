"""The option ``--sample_redaction``: the function that decides what samples show."""

import argparse
import re

from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions

from beam_spark_runner.core.errors import OptionsError

_FORM = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_EXPERIMENT = "enable_data_sampling"


def sample_redaction(values: argparse.Namespace, options: PipelineOptions) -> str | None:
    """Return the option, ``MODULE:FUNCTION``; None: samples show elements as they are.

    Args:
        values: The options of this package.
        options: All options, which take time to be parsed.

    Raises:
        OptionsError: It has another form, or there are no samples.
    """
    given = getattr(values, "sample_redaction", None)
    if given is None:
        return None
    if not _FORM.fullmatch(given):
        raise OptionsError("sample_redaction", f"{given!r} is not of the form MODULE:FUNCTION")
    if _EXPERIMENT not in (options.view_as(DebugOptions).experiments or ()):
        raise OptionsError(
            "sample_redaction", f"has no effect unless --experiments={_EXPERIMENT} is set"
        )
    return str(given)
