"""The submission of a bounded job: what a later start of it runs, stored before anything runs."""

import base64
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import apache_beam
from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core.version import VERSION
from beam_spark_runner.harness.main_classes import CodedClasses
from beam_spark_runner.portable.likeness import described_pipeline
from beam_spark_runner.recovery.formats import SUBMISSIONS
from beam_spark_runner.recovery.manifest import (
    IncompatibleCheckpointError,
    checked_fields,
    with_digest,
)

_CHANGED = (
    "the job in --checkpoint_dir was started from another pipeline, with other options, or by "
    "other versions, and cannot be continued by this program. Undo the change, or remove the "
    "folder to start from the beginning"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What a job runs.

    Attributes:
        job: The name of the job, see ``job_folders``. Empty: an earlier version has stored it.
        pipeline: The pipeline, as the SDK made it.
        options: The user's own options, by name, as far as JSON can represent them.
        main_classes: See ``PreparedJob``.
        versions: The versions that a later start must have, by name.
        began_s: When the first start began, Unix time.
    """

    job: str
    pipeline: beam_runner_api_pb2.Pipeline
    options: Mapping[str, Any]
    main_classes: CodedClasses
    versions: Mapping[str, str]
    began_s: float


def versions_of(spark: str) -> Mapping[str, str]:
    """Return the versions on which stored rows and pickles depend.

    Args:
        spark: The major version of Spark, or a word for where the job runs without.
    """
    return {
        "this package": VERSION,
        "Apache Beam": apache_beam.__version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "Spark": spark,
    }


def encode(submission: Submission) -> bytes:
    """Encode a submission as a file of two lines: the digest of the second one, which is JSON."""
    fields = {
        "job": submission.job,
        "pipeline": _base64(submission.pipeline.SerializeToString(deterministic=True)),
        "options": submission.options,
        "main_classes": {
            name: {"pickled": _base64(coded)} if isinstance(coded, bytes) else {"problem": coded}
            for name, coded in submission.main_classes.items()
        },
        "versions": submission.versions,
        "began_s": submission.began_s,
    }
    return with_digest(fields, SUBMISSIONS)


def decode(data: bytes, name: str) -> Submission:
    """Decode the file of a submission.

    Args:
        data: The content of the file.
        name: The name of the file, for the error.

    Raises:
        CorruptManifestError: The file is damaged.
        IncompatibleCheckpointError: Another version of this package has written it in another
            format.
    """
    fields = checked_fields(data, name, SUBMISSIONS)
    fields["pipeline"] = beam_runner_api_pb2.Pipeline.FromString(
        base64.b64decode(fields["pipeline"])
    )
    fields["main_classes"] = {
        name: base64.b64decode(coded["pickled"]) if "pickled" in coded else coded["problem"]
        for name, coded in fields["main_classes"].items()
    }
    return Submission(**fields)


def check_alike(stored: Submission, own: Submission) -> None:
    """Check that a program can continue a stored job.

    Args:
        stored: The submission of the job.
        own: What the program would submit.

    Raises:
        IncompatibleCheckpointError: Pipeline, options or versions differ.
    """
    differences = [
        f"{name}: was {stored_value}, is {own.versions[name]}"
        for name, stored_value in stored.versions.items()
        if own.versions[name] != stored_value
    ]
    for name in sorted({*stored.options, *own.options}):
        stored_value, own_value = (
            submission.options.get(name, "not set") for submission in (stored, own)
        )
        if stored_value != own_value:
            differences.append(f"--{name}: was {stored_value}, is {own_value}")
    before_steps, steps = described_pipeline(stored.pipeline), described_pipeline(own.pipeline)
    for name in {**before_steps, **steps}:
        if name not in steps:
            differences.append(f"the step {name} is missing")
        elif name not in before_steps:
            differences.append(f"the step {name} is new")
        else:
            changes = sorted(
                part
                for part in {*before_steps[name], *steps[name]}
                if before_steps[name].get(part) != steps[name].get(part)
            )
            if changes:
                differences.append(f"the step {name} has changed: {', '.join(changes)}")
    if differences:
        raise IncompatibleCheckpointError(tuple(differences), _CHANGED)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
