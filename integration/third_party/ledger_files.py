"""Read the ledgers of projects: what is expected of their tests on this runner."""

import json
import sys
from pathlib import Path
from typing import Any

from integration.validates_runner.expected import ExpectationsError, passes_on, reasons_of
from integration.validates_runner.ledger import Expectations, Verdict, collapse
from integration.validates_runner.runners import SPARK_EMBEDDED

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_ON_SPARK = "on_spark"
"""The table of what differs where user code runs in Spark's Python workers."""


def load(path: Path, version: str, runner: str) -> Expectations:
    """Load what is expected of a project's tests.

    Args:
        path: Of the ledger.
        version: Of the project whose tests run.
        runner: Of ``runners.RUNNERS``.

    Raises:
        ExpectationsError: It is for another version, or names a test twice.
    """
    content = tomllib.loads(path.read_text())
    if content["version"] != version:
        raise ExpectationsError(f"{path.name} is for {content['version']}, not for {version}")
    groups: dict[str, list[dict[str, Any]]] = {
        kind: list(content.get(kind, ())) for kind in ("failing", "vacuous", "skipped", "varying")
    }
    if runner == SPARK_EMBEDDED:
        for kind, more in content.get(_ON_SPARK, {}).items():
            groups[kind] += more
    return Expectations(
        failing=reasons_of(groups["failing"], path),
        vacuous=reasons_of(groups["vacuous"], path),
        passes_on=passes_on(groups["failing"]),
        skipped=reasons_of(groups["skipped"], path),
        own_runner=frozenset(content.get("own_runner", ())),
        no_pipeline=frozenset(content.get("no_pipeline", ())),
        varying=reasons_of(groups["varying"], path),
    )


def lists(verdicts: dict[str, Verdict]) -> str:
    """Return the lists of a ledger that name tests without a pipeline on this runner, as TOML."""
    return "\n".join(
        f"{name} = [\n" + "".join(f"    {json.dumps(entry)},\n" for entry in entries) + "]"
        for name, verdict in (
            ("own_runner", Verdict.OWN_RUNNER),
            ("no_pipeline", Verdict.NO_PIPELINE),
        )
        if (entries := collapse(verdict, verdicts))
    )
