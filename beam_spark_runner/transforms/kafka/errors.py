"""What goes wrong with Kafka."""


class KafkaAccessError(RuntimeError):
    """Kafka cannot be read or written as the pipeline asks for it.

    Raised when a pipeline is built, and by steps while it runs. It is no error of the runner, which
    reports what steps raise with their names, wherever they run.

    Args:
        problem: what is wrong, and what to do.
        where: the transform, and the topic if one is concerned; empty: the step says it.
    """

    def __init__(self, problem: str, where: str) -> None:
        super().__init__(problem, where)
        self.problem, self.where = problem, where

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}" if self.where else self.problem
