"""Finds the master and settings that Spark takes if a program names none."""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyspark

from beam_spark_runner.spark import pyspark_internals

DEFAULT_MASTER = "local[*]"
_PROPERTY = re.compile(r"\s*(spark\.[^\s=:]+)\s*[\s=:]\s*(\S.*)")


def chosen_master() -> str | None:
    """Return the master that ``spark-submit`` or Spark's configuration have chosen.

    If a JVM runs, the master that it was started with. Before that, the first that names one of
    PYSPARK_SUBMIT_ARGS, ``spark-defaults.conf``, the environment variable MASTER.

    Returns:
        None: nothing has; Spark then takes ``local[*]``.

    Source: Spark's ``SparkSubmitArguments.mergeDefaultSparkProperties``.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ or pyspark_internals.is_connected_to_jvm():
        pyspark_internals.start_jvm()
        jvm = pyspark_internals.jvm()
        assert jvm is not None
        master = jvm.java.lang.System.getProperty("spark.master")
        return None if master is None else str(master)
    return next(_choices(), None)


def default_master() -> str:
    """Return the master of a Spark that this process would start, if no option named one.

    Whichever JVM runs now: it would be another one.
    """
    return next(_choices(), DEFAULT_MASTER)


def chosen_settings(names: Iterable[str]) -> Mapping[str, str]:
    """Return those settings that ``spark-submit`` or Spark's configuration have, of some names.

    Under ``spark-submit``, what its JVM was started with. Else what PYSPARK_SUBMIT_ARGS and
    ``spark-defaults.conf`` say: PySpark itself starts a JVM with some more.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        words = _words()
        settings = {**dict([*_properties(words)][::-1]), **dict([*_confs(words)][::-1])}
        if (app_name := next(_values(words, "--name"), None)) is not None:
            settings["spark.app.name"] = app_name
        return {name: settings[name] for name in names if name in settings}
    pyspark_internals.start_jvm()
    jvm = pyspark_internals.jvm()
    assert jvm is not None
    found = {name: jvm.java.lang.System.getProperty(name) for name in names}
    return {name: str(value) for name, value in found.items() if value is not None}


def _choices() -> Iterator[str]:
    words = _words()
    yield from _values(words, "--master")
    for name, value in (*_confs(words), *_properties(words)):
        if name == "spark.master":
            yield value
    if master := os.environ.get("MASTER"):
        yield master


def _words() -> Sequence[str]:
    with suppress(ValueError):  # an open quotation mark, of which Spark's own error says more
        return shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    return ()


def _confs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the settings of a command line; the last one is first, since it wins."""
    for setting in _values(words, "--conf", "-c"):
        name, _, value = setting.partition("=")
        yield name.strip(), value.strip()


def _properties(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the settings of Spark's configuration; the last one is first, since it wins."""
    with suppress(OSError):  # most machines have none
        lines = _properties_file(words).read_text(errors="replace").splitlines()
        for line in reversed(lines):
            if found := _PROPERTY.match(line):
                yield found[1], found[2].rstrip()


def _values(words: Sequence[str], *options: str) -> Iterator[str]:
    """Yield the values of an option of a command line; the last one is first, since it wins."""
    for number in reversed(range(len(words))):
        name, has_value, value = words[number].partition("=")
        if name not in options:
            continue
        if has_value:
            yield value
        elif number + 1 < len(words):
            yield words[number + 1]


def _properties_file(words: Sequence[str]) -> Path:
    if path := next(_values(words, "--properties-file"), None):
        return Path(path)
    home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    return Path(
        os.environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf"), "spark-defaults.conf"
    )
