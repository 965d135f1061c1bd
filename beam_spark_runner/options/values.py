"""Parses values of options. Each error names the option and the expected form."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast, get_args

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.sizes import parse_bytes
from beam_spark_runner.core.storage_urls import is_url, parse_storage_url

_MASTER = re.compile(r"local(-cluster)?(\[.*\])?|yarn|(spark|k8s|mesos|sc)://.+")


def number(option: str, given: Any) -> float:
    """Parse a number that is not negative; some of Beam's options are texts."""
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number < float("inf"):
        raise OptionsError(option, f"must be zero or a positive number, not {given!r}")
    return number


def size(option: str, given: Any) -> int | None:
    """Parse a size of memory; return bytes."""
    try:
        return None if given is None else parse_bytes(given)
    except ValueError as error:
        raise OptionsError(option, str(error)) from error


def boolean(option: str, given: Any) -> bool:
    """Parse "true" or "false", or take a bool that a program has set."""
    if isinstance(given, bool):
        return given
    said: str = one_of(option, str(given).lower(), Literal["true", "false"])
    return said == "true"


def master(url: str | None) -> str | None:
    """Check ``--spark_master_url``."""
    if url is None:
        return None
    if not _MASTER.fullmatch(url):
        raise OptionsError(
            "spark_master_url",
            f"{url!r} is not a Spark master; use local[*], spark://HOST:PORT, yarn, k8s://…, "
            "or sc://HOST:PORT for Spark Connect",
        )
    return url


def spark_conf(given: object) -> dict[str, str]:
    """Parse ``--spark_conf``: KEY=VALUE strings, a JSON object, or a mapping set by a program."""
    conf: dict[str, str] = {}
    for key, value in _conf_items(given):
        if not key.startswith("spark."):
            raise OptionsError(
                "spark_conf", f"{key!r}: names of Spark properties begin with 'spark.'"
            )
        if key in ("spark.master", "spark.remote"):
            raise OptionsError("spark_conf", f"{key} is set by --spark_master_url")
        conf[key] = value
    return conf


def _conf_items(given: object) -> Iterator[tuple[str, str]]:
    if not given:
        return
    if isinstance(given, Mapping):
        for key, value in given.items():
            # As Spark spells booleans.
            yield str(key), str(value).lower() if isinstance(value, bool) else str(value)
        return
    for text in [given] if isinstance(given, str) else cast("list[str]", given):
        if text.lstrip().startswith("{"):  # what PipelineOptions.from_dictionary makes of a dict
            try:
                decoded = json.loads(text)
            except ValueError as error:
                raise OptionsError("spark_conf", f"{text!r} is not valid JSON: {error}") from error
            yield from _conf_items(decoded)
            continue
        key, separator, value = text.partition("=")
        if not separator:
            raise OptionsError("spark_conf", f"{text!r} is not of the form KEY=VALUE")
        yield key.strip(), value.strip()


def positive(option: str, value: object) -> int | None:
    """Check a positive number of one of Beam's options, for which -1 means "not given"."""
    if value is None or value == -1:
        return None
    if not isinstance(value, int) or value < 1:
        raise OptionsError(option, f"must be a positive number, not {value!r}")
    return value


def one_of(option: str, value: Any, choices: Any) -> Any:
    """Check that a value is one of those of a ``Literal``, or None."""
    if value is None or value in get_args(choices):
        return value
    raise OptionsError(option, f"{value!r} is not one of: {', '.join(get_args(choices))}")


def required_folder(option: str, given: str) -> str:
    """Return a folder as ``checkpoint_folder`` does.

    Raises:
        OptionsError: The path is empty, or a URL that is not supported.
    """
    folder = checkpoint_folder(option, given)
    if folder is None:
        raise OptionsError(option, "must be a folder")
    return folder


def checkpoint_folder(option: str, given: str | None) -> str | None:
    """Return a folder for checkpoints or a savepoint; None: it is not given.

    A URL is converted to the form of Hadoop's connectors, which ``state.url_folder`` expects.
    """
    if not given or not is_url(given):
        return given or None
    try:
        return parse_storage_url(given).spark
    except ValueError as error:
        raise OptionsError(option, str(error)) from error
