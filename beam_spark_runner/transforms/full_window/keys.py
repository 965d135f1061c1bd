"""What the records of a partition are sorted by."""

import enum
import operator
from collections.abc import Callable
from typing import Any


class Order(enum.Enum):
    """In which order records are sorted."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


def key_of(field: int | str | Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function that gives the key of a record.

    Args:
        field: the place of a field in a tuple, the name of an attribute (``a.b``: of an
            attribute's attribute), or the function itself.
    """
    if isinstance(field, int):
        return operator.itemgetter(field)
    if isinstance(field, str):
        return operator.attrgetter(field)
    return field
