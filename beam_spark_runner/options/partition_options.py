"""``--parallelism``, ``--max_parallelism`` and ``--autoscale``."""

import re
from typing import Any, NamedTuple

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.routing import KEY_GROUPS
from beam_spark_runner.options.values import MAX_PARTITIONS, positive


class PartitionLimits(NamedTuple):
    """Between which numbers of partitions a stream changes by itself."""

    least: int
    most: int

    def nearest(self, partitions: int) -> int:
        """Return the number within the limits that is nearest to another one."""
        return max(self.least, min(partitions, self.most))


class PartitionOptions(NamedTuple):
    """The options of the number of partitions; None: not given."""

    parallelism: int | None
    max_parallelism: int | None
    autoscale: PartitionLimits | None


def key_groups_of_stream(max_parallelism: int | None) -> int:
    """Return the number of key groups of a stream, which is its largest number of partitions."""
    return max_parallelism or KEY_GROUPS


def partition_options(values: Any) -> PartitionOptions:
    """Read the options.

    Raises:
        OptionsError: One of them is wrong, or contradicts another one.
    """
    given = positive("parallelism", values.parallelism, MAX_PARTITIONS)
    most = positive("max_parallelism", values.max_parallelism, MAX_PARTITIONS)
    if given and most and given > most:
        raise OptionsError("parallelism", f"{given} is more than --max_parallelism={most}")
    limits = _limits(getattr(values, "autoscale", None))
    if limits is not None:
        groups = key_groups_of_stream(most)
        if limits.most > groups:
            raise OptionsError(
                "autoscale",
                f"{limits.most} is more than --max_parallelism, which is {groups} for a streaming "
                "pipeline unless it is set",
            )
        if given and limits.nearest(given) != given:
            raise OptionsError(
                "parallelism",
                f"{given} is not within --autoscale={limits.least}..{limits.most}",
            )
    return PartitionOptions(given, most, limits)


def _limits(value: object) -> PartitionLimits | None:
    if value is None:
        return None
    matched = re.fullmatch(r"(\d{1,6})\.\.(\d{1,6})", str(value).strip())
    limits = PartitionLimits(*map(int, matched.groups())) if matched else None
    if limits is None or not 1 <= limits.least <= limits.most:
        raise OptionsError(
            "autoscale", f"must be two numbers of partitions, such as 2..16, not {value!r:.100}"
        )
    return limits
