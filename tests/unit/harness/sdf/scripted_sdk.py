"""An SDK that runs a function of the test's, and a clock that stands still."""

from collections.abc import Callable
from typing import Any

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.bundle import IDLE, Activity, BundleResult
from tests.unit.harness.sdf.residual_protos import residual

Process = Callable[[str, int], list[tuple[str, int, float, float]]]  # see ``ScriptedSdk``


class ScriptedSdk:
    """Runs ``process(element, position)``, which says what it defers.

    Each deferred part is an element, a position, a delay in ms, and its output watermark.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self.now_us = 0
        self.done: list[tuple[str, int, int]] = []  # element, position, when
        self.bundles: list[int] = []  # how many elements each got
        self.windows: list[Any] = []
        self.fractions: list[float] = []  # at which bundles were split
        # The state of the watermark estimator and the size of what is deferred.
        self.estimates: Callable[[], tuple[int, float]] = lambda: (0, 1.0)

    def start_bundle(self) -> "ScriptedBundle":
        return ScriptedBundle(self)


class ScriptedBundle:
    def __init__(self, sdk: ScriptedSdk) -> None:
        self._sdk = sdk
        self._residuals: list[Any] = []
        sdk.bundles.append(0)

    def enter(self) -> None:
        pass

    def progress(self) -> list[bytes]:
        return [b"%d" % self._sdk.bundles[-1]]

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        for value, origin in zip(values, origins, strict=True):
            (element, (position, _)), _ = value
            self._sdk.bundles[-1] += 1
            self._sdk.done.append((element, position, self._sdk.now_us))
            self._sdk.windows.append(origin.windows)
            for deferred, rest, delay_ms, watermark in self._sdk.process(element, position):
                state, size = self._sdk.estimates()
                self._residuals.append(
                    residual(
                        origin.with_value(((deferred, (rest, state)), size)),
                        delay_ms,
                        {"out": watermark},
                    )
                )

    def push_from_within(self, values: list[Any], origins: list[WindowedValue]) -> None:
        raise NotImplementedError

    def flush(self) -> None:
        pass

    def advance_key(self) -> None:
        raise AssertionError("a splittable DoFn has no keys")

    def split(self, fraction_of_remainder: float) -> Any:
        self._sdk.fractions.append(fraction_of_remainder)
        return ()  # nothing is ever under way for long

    def samples(self) -> Any:
        return {}

    def activity(self) -> Activity:
        return IDLE

    def status(self) -> str:
        raise NotImplementedError

    def give_up(self, error: Any) -> bool:
        raise NotImplementedError

    def finish(self) -> BundleResult:
        return BundleResult(monitoring_infos=(), residual_roots=tuple(self._residuals))

    def abort(self) -> None:
        raise NotImplementedError


def three_times(delay_ms: float) -> Process:
    return lambda element, position: (
        [(element, position + 1, delay_ms, 0.0)] if position < 2 else []
    )
