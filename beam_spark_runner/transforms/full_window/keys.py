"""The sort order of the records of a partition, and their keys."""

import enum
import operator
from collections.abc import Callable
from typing import Any


class Order(enum.Enum):
    """The order in which records are sorted."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


def key_of(field: int | str | Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function that returns the key of a record.

    Args:
        field: The index of a field in a tuple, the name of an attribute (``a.b``: an attribute of
            an attribute), or the function itself.
    """
    if isinstance(field, int):
        return operator.itemgetter(field)
    if isinstance(field, str):
        return operator.attrgetter(field)
    return field
