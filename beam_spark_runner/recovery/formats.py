"""The numbered formats of stored files, and the migration from each one to the next.

A version of this package writes the newest format of each kind of file, and reads those from which
migrations lead to it. A change of a format gets the next number and a migration. The releases in
``tests/pipelines/stored_releases`` have files of earlier formats, which tests continue from.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Fields = dict[str, Any]
Migration = Callable[[Fields], object]
"""Changes the fields of a file, as they are in JSON, to those of the next format."""


def unchanged(_fields: Fields) -> None:
    """Change nothing: the next format differs in what is not among these fields."""


@dataclass(frozen=True, slots=True)
class Formats:
    """The formats of one kind of file.

    Attributes:
        newest: The number of the format that is written.
        migrations: By the number of each earlier format that is read: its migration. The numbers
            have no gaps.
    """

    newest: int
    migrations: Mapping[int, Migration]

    @property
    def read(self) -> tuple[int, ...]:
        """The numbers of the formats that are read, in their order."""
        return (*sorted(self.migrations), self.newest)

    def migrate(self, fields: Fields, written: int) -> None:
        """Convert fields to the newest format.

        Args:
            fields: The fields of a file, which are changed.
            written: The number of their format, one of ``read``.
        """
        for number in range(written, self.newest):
            self.migrations[number](fields)


def _with_state_store(fields: Fields) -> None:
    fields.update(namespace="", stores={}, next_store=0, keyed=[])


def _with_parts_of_keys(fields: Fields) -> None:
    fields["keyed"] = [[*head, []] for head in fields["keyed"]]


def _with_needs(fields: Fields) -> None:
    fields["needs"] = {}


def _with_left_namespaces(fields: Fields) -> None:
    fields["left_namespaces"] = []


def _with_tables(fields: Fields) -> None:
    fields.update(chain="", unwritten=[])


EPOCHS = Formats(
    16,
    {
        9: unchanged,  # views have digests
        10: _with_state_store,
        11: _with_parts_of_keys,
        12: _with_needs,  # records may be left for the next epoch
        13: _with_left_namespaces,
        14: unchanged,  # the version of this package is among the fields
        15: _with_tables,
    },
)
"""Manifests of streaming pipelines, also in savepoints."""

COMMITS = Formats(
    4,
    {
        2: unchanged,  # the version of this package is among the fields
        3: unchanged,  # several values of one key may be in one row
    },
)
"""Manifests of bounded pipelines."""


def _without_name(fields: Fields) -> None:
    fields["job"] = ""


SUBMISSIONS = Formats(
    3,
    {
        1: unchanged,  # they have the version of this package
        2: _without_name,
    },
)
"""Submissions of bounded pipelines. Since 3, each job has a name, and a subfolder of that name."""

JOBS = Formats(2, {1: unchanged})
"""Jobs of a job server, and their ends. Since 2, they have the version of this package."""
