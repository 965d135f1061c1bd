"""Splits a restriction when the time for processing it is over."""

import threading

from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.harness.bundle import Bundle

_ASK_AGAIN_S = 0.05
_LITTLE = (0.0, 1 / 64, 1 / 16, 1 / 4)
"""How much of a restriction to keep. Sources that read records refuse to keep none."""


class TimedCheckpoint:
    """Splits a bundle when its time is spent, from a thread of its own.

    What is left of the restriction under way is cut into pieces, as far as its tracker can:
    one after another off the end, and last what is left but for what has been claimed (or a
    little more, where the tracker wants it so).

    Attributes:
        residual_roots: what was split off. To be read after ``stop``, as ``error``.
        error: what the tracker raised.
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
        """Split no more. Returns once no split is under way."""
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
