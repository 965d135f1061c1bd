"""Splits a restriction when the time for processing it is over."""

import threading

from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.harness.bundle import Bundle

_ASK_AGAIN_S = 0.05
_LITTLE = (0.0, 1 / 64, 1 / 16, 1 / 4)
"""Fractions to keep, tried in order. Sources that read records refuse to keep nothing."""


class TimedSplit:
    """Splits a bundle when its time is spent, from its own thread.

    The rest of the current restriction is cut into pieces, as far as its tracker allows: first
    pieces from its end, one after another, then all that has not been claimed (or a little less,
    if the tracker requires it).

    Args:
        bundle: The bundle to split.
        after_s: The time after which it is split, in seconds.
        pieces: The number of residuals to make.

    Attributes:
        residual_roots: The residuals. To be read after ``stop``, like ``error``.
        error: The exception of the tracker; None: it raised none.
    """

    def __init__(self, bundle: Bundle, after_s: float, pieces: int) -> None:
        self.residual_roots: list[beam_fn_api_pb2.DelayedBundleApplication] = []
        self.error: BaseException | None = None
        self._bundle = bundle
        self._after_s = after_s
        self._pieces = pieces
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beam-checkpoint", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop splitting; return when no split is running any more."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        wait_s = self._after_s
        try:
            # Between two elements there is nothing to split; some trackers never split.
            while not self.residual_roots and not self._stopped.wait(wait_s):
                wait_s = _ASK_AGAIN_S
                for count in range(self._pieces, 1, -1):
                    self.residual_roots += self._bundle.split((count - 1) / count)
                for fraction in _LITTLE:
                    if roots := self._bundle.split(fraction):
                        self.residual_roots += roots
                        break
        except BaseException as error:
            self.error = error
