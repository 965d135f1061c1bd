"""How many partitions a stream should have; with ``--autoscale`` it gets them."""

from collections.abc import Callable

from beam_spark_runner.observing.epoch_status import EpochStatus
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.options.partition_options import PartitionLimits, key_groups_of_stream
from beam_spark_runner.scheduling.parallelism import Advice, EpochLoad, ParallelismRule


class PartitionAdvice:
    """Follows the load of a stream.

    Threads: one calls ``note`` and ``following``, any may read ``advice``.

    Args:
        config: The options of the pipeline.
        inform: Is called with a text whenever the number of partitions is to change.
    """

    def __init__(self, config: RunnerConfig, inform: Callable[[str], None]) -> None:
        self.is_followed = config.autoscale is not None
        most = key_groups_of_stream(config.max_parallelism)
        self._limits = config.autoscale or PartitionLimits(1, most)
        self._given = config.parallelism
        self._inform = inform
        self._rule = ParallelismRule(self._limits.least, self._limits.most)

    @property
    def advice(self) -> Advice | None:
        """The newest recommendation; None: no epoch has run."""
        return self._rule.advice

    def note(
        self, status: EpochStatus, now_s: float, elements_per_s: float | None, backlog: float | None
    ) -> None:
        """Take an epoch into account; see ``EpochLoad``.

        Args:
            status: The status after the epoch.
            now_s: The monotonic clock.
            elements_per_s: What all sources emit.
            backlog: What they have yet to read.
        """
        self._rule.note(
            EpochLoad(
                now_s=now_s,
                partitions=status.partitions,
                tasks_us=status.tasks_us,
                was_cut_off=status.was_cut_off,
                elements_per_s=elements_per_s,
                backlog=backlog,
            )
        )

    def following(self, partitions: int) -> int:
        """Return the number of partitions that should follow this one.

        A start continues with the number of its checkpoint, unless it is given another one.
        """
        advice = self.advice
        if advice is None:
            return self._given or self._limits.nearest(partitions)
        if advice.partitions != partitions:
            self._inform(
                f"--autoscale: {advice.partitions} partitions follow {partitions}, since "
                f"{advice.reason.value}"
            )
        return advice.partitions
