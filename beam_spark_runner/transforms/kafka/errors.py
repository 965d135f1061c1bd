"""The error of the Kafka transforms."""

from typing_extensions import override


class KafkaAccessError(RuntimeError):
    """Kafka cannot be read or written as the pipeline specifies.

    It is raised when a pipeline is built, and by steps while it runs. It is not a ``RunnerError``,
    since it is raised by user code; the runner reports it with the name of the step.

    Args:
        problem: What is wrong, and what to do.
        where: The label of the transform, and the topic if one is concerned; empty: not known.
    """

    def __init__(self, problem: str, where: str) -> None:
        super().__init__(problem, where)
        self.problem, self.where = problem, where

    @override
    def __str__(self) -> str:
        return f"{self.where}: {self.problem}" if self.where else self.problem
