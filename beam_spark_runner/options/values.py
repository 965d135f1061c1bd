"""Parses values of options. Each error names the option and the expected form."""

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast, get_args

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.sizes import parse_bytes
from beam_spark_runner.storage.urls import hadoop_url, is_url

_DIGITS_OF_A_LEVEL = 6
_LEVELS = frozenset({"TRACE", "NOTICE", "OFF", "ALL", "SEVERE"})  # which Python does not have
_MASTER = re.compile(r"local(-cluster)?(\[.*\])?|yarn|(spark|k8s|mesos|sc)://.+")


MAX_SECONDS = 10 * 365 * 86_400
"""The longest time that an option may have: waits of threads have a limit, too, 292 years."""
MAX_BYTES = 1 << 50
"""The largest size that an option may have; files and memory have less."""
MAX_PARTITIONS = 100_000
"""The most partitions of an exchange: Spark needs memory in the driver for each of them."""


def number(option: str, value: Any, most: float) -> float:
    """Parse a number that is not negative; some of Beam's options are texts.

    Args:
        option: The name of the option.
        value: The value, of any type: clients of a job server send JSON.
        most: The largest value.

    Raises:
        OptionsError: It is no such number.
    """
    try:
        # A bool is an int in Python.
        number = -1.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if not 0 <= number < float("inf"):
        raise OptionsError(option, f"must be zero or a positive number, not {value!r:.100}")
    _check_most(option, number, most)
    return number


def seconds(option: str, value: Any) -> float:
    """Parse a time in seconds; see ``number``."""
    return number(option, value, MAX_SECONDS)


def positive_seconds(option: str, value: Any) -> float:
    """Parse a time in seconds that is not 0; see ``number``."""
    parsed_s = seconds(option, value)
    if not parsed_s:
        raise OptionsError(option, "must be more than 0 seconds")
    return parsed_s


def milliseconds(option: str, value: Any) -> float:
    """Parse a time in milliseconds, and return it in seconds; see ``number``."""
    return number(option, value, MAX_SECONDS * 1000) / 1000


def size(option: str, value: Any) -> int | None:
    """Parse a size of memory; return bytes."""
    try:
        size_bytes = None if value is None else parse_bytes(value)
    except ValueError as error:
        raise OptionsError(option, str(error)) from error
    if size_bytes is not None:
        _check_most(option, size_bytes, MAX_BYTES)
    return size_bytes


def at_least_one(option: str, value: int, most: int) -> int:
    """Check a whole number, which argparse has parsed.

    Raises:
        OptionsError: It is less than 1, or more than ``most``.
    """
    if value < 1:
        raise OptionsError(option, f"must be at least 1, not {value!r:.100}")
    _check_most(option, value, most)
    return value


def _check_most(option: str, value: float, most: float) -> None:
    if value > most:
        raise OptionsError(option, f"must be at most {most}, not {value!r:.100}")


def log_level(option: str, value: Any) -> None:
    """Check a level of log lines: a name of any SDK's, or of this process, or a number.

    Raises:
        OptionsError: It is none.
    """
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        text = str(value).upper()
        is_number = text.isascii() and text.isdigit() and len(text) < _DIGITS_OF_A_LEVEL
        if is_number or text in _LEVELS or isinstance(logging.getLevelName(text), int):
            return
    raise OptionsError(
        option, f"{value!r:.100} is not a level of log lines, such as DEBUG, INFO or ERROR"
    )


def boolean(option: str, value: Any) -> bool:
    """Parse "true" or "false", or take a bool that a program has set."""
    if isinstance(value, bool):
        return value
    text: str = one_of(option, str(value).lower(), Literal["true", "false"])
    return text == "true"


IN_PROCESS = "in-process"
"""The value of ``--spark_master_url`` with which a pipeline runs in its program, without Spark."""


def master(url: str | None) -> str | None:
    """Check ``--spark_master_url``."""
    if url is None or url == IN_PROCESS:
        return url
    if not _MASTER.fullmatch(url):
        raise OptionsError(
            "spark_master_url",
            f"{url!r} is not a Spark master; use local[*], spark://HOST:PORT, yarn, k8s://…, "
            f"sc://HOST:PORT for Spark Connect, or {IN_PROCESS} for none",
        )
    return url


def spark_conf(option_value: object) -> dict[str, str]:
    """Parse ``--spark_conf``: KEY=VALUE strings, a JSON object, or a mapping set by a program."""
    conf: dict[str, str] = {}
    for key, value in _conf_items(option_value):
        if not key.startswith("spark."):
            raise OptionsError(
                "spark_conf", f"{key!r}: names of Spark properties begin with 'spark.'"
            )
        if key in ("spark.master", "spark.remote"):
            raise OptionsError("spark_conf", f"{key} is set by --spark_master_url")
        conf[key] = value
    return conf


def _conf_items(option_value: object) -> Iterator[tuple[str, str]]:
    if not option_value:
        return
    if isinstance(option_value, Mapping):
        for key, value in option_value.items():
            # As Spark spells booleans.
            yield str(key), str(value).lower() if isinstance(value, bool) else str(value)
        return
    for text in (
        [option_value] if isinstance(option_value, str) else cast("list[str]", option_value)
    ):
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


def renamed_steps(mapping: object) -> tuple[tuple[str, str], ...]:
    """Check ``--transform_name_mapping``, and return its pairs of earlier and new names."""
    if not mapping:
        return ()
    if not isinstance(mapping, dict) or not all(isinstance(name, str) for name in mapping.values()):
        raise OptionsError(
            "transform_name_mapping",
            "must be a JSON object that maps earlier names of steps to new ones",
        )
    return tuple(mapping.items())


def positive(option: str, value: object, most: int) -> int | None:
    """Check a positive number of one of Beam's options, for which -1 means "not given"."""
    if value is None or (value == -1 and not isinstance(value, bool)):
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise OptionsError(option, f"must be a positive number, not {value!r:.100}")
    _check_most(option, value, most)
    return value


def one_of(option: str, value: Any, choices: Any) -> Any:
    """Check that a value is one of those of a ``Literal``, or None."""
    if value is None or value in get_args(choices):
        return value
    raise OptionsError(option, f"{value!r} is not one of: {', '.join(get_args(choices))}")


def archive_folder(folder: str | None) -> str | None:
    """Return the folder of Spark's class archives; None: ``off``, or this user has no home."""
    if folder is not None:
        return None if folder == "off" else os.path.abspath(folder)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "beam-spark-runner") if os.path.isabs(cache) else None


def required_folder(option: str, value: str) -> str:
    """Return a folder as ``checkpoint_folder`` does.

    Raises:
        OptionsError: The path is empty, or a URL that is not supported.
    """
    folder = checkpoint_folder(option, value)
    if folder is None:
        raise OptionsError(option, "must be a folder")
    return folder


def checkpoint_folder(option: str, value: str | None) -> str | None:
    """Return a folder for checkpoints or a savepoint; None: it is not given.

    A URL is converted to the form of Hadoop's connectors, which ``storage.folder_at`` expects.
    """
    if not value or not is_url(value):
        return value or None
    try:
        return hadoop_url(value)
    except ValueError as error:
        raise OptionsError(option, str(error)) from error
