"""The option ``--lineage_url``: where a program reports what its pipelines read and write."""

import argparse
import importlib.util
from urllib.parse import urlsplit

from beam_spark_runner.core.errors import OptionsError


def lineage_url(values: argparse.Namespace, job_endpoint: str | None) -> str | None:
    """Check the option; None: nothing is reported.

    Args:
        values: All options.
        job_endpoint: HOST:PORT of the job server; None: the pipeline runs in this process.

    Raises:
        OptionsError: It is no URL, a library is missing, or it has no effect.
    """
    url = getattr(values, "lineage_url", None)
    if url is None:
        return None
    if job_endpoint is not None:
        raise OptionsError("lineage_url", "has no effect with --job_endpoint")
    if not _is_of_a_server(url):
        _, at, place = url.rpartition("@")
        shown = f"…@{place}" if at else url  # without a password
        raise OptionsError(
            "lineage_url", f"{shown!r} is not the URL of a server, such as http://host:5000"
        )
    if importlib.util.find_spec("openlineage") is None:
        raise OptionsError(
            "lineage_url", "needs openlineage-python: pip install 'beam-spark-runner[lineage]'"
        )
    return str(url)


def _is_of_a_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is no number
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
