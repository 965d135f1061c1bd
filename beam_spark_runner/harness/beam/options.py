"""What the SDK sees of a pipeline's options in this process."""

import json
from collections.abc import Mapping
from typing import Any

from apache_beam.internal import pickler
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.value_provider import RuntimeValueProvider


def use_options(options_json: str) -> Mapping[str, Any]:
    """Let the SDK see the pipeline's options, as SDK harnesses do at their start.

    Value providers give them, file systems have addresses from them, and user code is unpickled
    by the library that pickled it.

    Args:
        options_json: as of ``sdk_options.options_json``.

    Returns:
        The options, by name.
    """
    given = {urn.split(":")[2]: value for urn, value in json.loads(options_json).items()}
    RuntimeValueProvider.set_runtime_options(given)
    FileSystems.set_options(PipelineOptions.from_dictionary(given))
    pickler.set_library(given.get("pickle_library", "default"))
    return given
