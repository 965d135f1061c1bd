"""The contract of gates."""

from beam_spark_runner.engine.stages.outcome import Outcome


class Gate:
    """Where elements, timers or restrictions of a stage wait in the shard until they are due.

    A gate through which elements pass is a ``BundleInput``, too. What it stores holds the watermark
    by the timers in the store: these are its hold, and ``semantics.watermarks`` reads them there.

    In each epoch in which the stage runs, it calls in this order, each once:

    - ``begin``, before the stage gets elements. A bundle of another stage may be running.
    - ``run_due``, when the stage has got all elements of the epoch; if the stage requires stable
      input, right after ``begin`` instead.
    - ``save``, before the operator finishes: nothing is pushed any more.
    - ``report``, after the operator has finished.

    If one raises, the stage is aborted: no further call follows, and the shard is not sealed.
    """

    def begin(self) -> None:
        """Push what has become ready since the previous epoch."""

    def run_due(self) -> None:
        """Process what is due at the watermark and the clock of the epoch."""

    def save(self) -> None:
        """Store what is still buffered."""

    def report(self, outcome: Outcome) -> None:
        """Add to what the stage reports of the epoch."""
