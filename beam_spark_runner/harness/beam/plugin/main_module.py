"""Gives an SDK harness the classes of the main module of the program that built the pipeline.

``sdk_worker_main`` imports this module because of ``--beam_plugin``, before it has any work.
"""

import os
from pathlib import Path

from beam_spark_runner.harness.beam.dill_main import show_dill
from beam_spark_runner.harness.main_classes import MainModule, from_json

_VARIABLE = "BEAM_SPARK_MAIN_CLASSES"
"""Has ``main_classes.to_json``; if that is long, a variable with the suffix ``_FILE`` names a file.
See ``environments.process``."""


def _classes_text() -> str | None:
    file = os.environ.get(f"{_VARIABLE}_FILE")
    return os.environ.get(_VARIABLE) if file is None else Path(file).read_text()


_text = _classes_text()
if _text is not None:
    MainModule(from_json(_text)).serve()
    show_dill()
