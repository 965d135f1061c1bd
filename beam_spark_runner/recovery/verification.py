"""Verifies all files of a checkpoint folder or savepoint, while its pipeline runs or not."""

from collections.abc import Iterator
from typing import NamedTuple

from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.recovery.commit import numbers_in
from beam_spark_runner.recovery.manifest import decode, epochs_of, manifest_name
from beam_spark_runner.recovery.savepoint_copy import Check, CopyingStorage
from beam_spark_runner.recovery.sweep import named_by


class VerifiedEpoch(NamedTuple):
    """A committed epoch.

    Attributes:
        epoch: Its number.
        files: How many files its manifest names.
        problems: What is wrong, for people; empty: it is whole.
    """

    epoch: int
    files: int
    problems: tuple[str, ...]


def verified(storage: CopyingStorage, lineage: str, check: Check) -> Iterator[VerifiedEpoch]:
    """Yield each epoch that a folder has a manifest of, the newest first.

    A file is read once. An epoch whose files the driver deletes meanwhile is left out.

    Args:
        storage: The folder.
        lineage: The lineage of the pipeline.
        check: Verifies a file.
    """
    problems: dict[str, str | None] = {}

    def problem_of(name: str) -> str | None:
        try:
            content = storage.open(name)
            if content is None:
                return f"{name} is missing"
            with content:
                check(name, content)
        except RunnerError as error:
            return str(error)
        return None

    for epoch in reversed(numbers_in(storage, epochs_of(lineage))):
        name = manifest_name(lineage, epoch)
        try:
            needed = sorted(named_by(decode(storage.read(name), name)))
        except RunnerError as error:
            found = VerifiedEpoch(epoch, 0, (str(error),))
        else:
            for each in needed:
                if each not in problems:
                    problems[each] = problem_of(each)
            wrong = tuple(why for each in needed if (why := problems[each]) is not None)
            found = VerifiedEpoch(epoch, len(needed), wrong)
        if found.problems and name not in storage.names():
            continue
        yield found
