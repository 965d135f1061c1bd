"""Follow the pipelines of a test, and whether their ``assert_that`` steps were satisfied."""

import sys
import tempfile
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apache_beam import pipeline as beam_pipeline
from apache_beam.runners.runner import PipelineResult, PipelineState
from apache_beam.testing import util

from integration.validates_runner import runners

_FAILED = (PipelineState.FAILED, PipelineState.CANCELLED)


@dataclass
class _Run:
    pipeline: int  # its number: tests look at what is left of a pipeline that nobody holds
    is_under_test: bool
    runner: str
    result: PipelineResult | None = None
    """None: it raised."""

    @property
    def failed(self) -> bool:
        return self.result is None or self.result.state in _FAILED


@dataclass
class Watch:
    """What one test did. ``install`` first; then ``reset`` before each test."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="conformance-")))
    """Where matchers leave their files: all workers must see it."""
    _runs: list[_Run] = field(default_factory=list)
    _asserted: list[tuple[int, str, Path]] = field(default_factory=list)
    _numbers: "weakref.WeakKeyDictionary[Any, int]" = field(
        default_factory=weakref.WeakKeyDictionary
    )
    _count: int = 0

    def _number(self, pipeline: Any) -> int:
        self._count += 1
        return self._numbers.setdefault(pipeline, self._count)

    def reset(self) -> None:
        """Forget the last test."""
        self._runs = []
        for _, _, path in self._asserted:
            path.unlink(missing_ok=True)
        self._asserted = []

    def stop_pipelines(self) -> None:
        """Cancel what the test left running."""
        for run in self._runs:
            if run.result is None or not run.is_under_test:
                continue
            if not PipelineState.is_terminal(run.result.state):
                run.result.cancel()

    @property
    def drives_runner(self) -> bool:
        """Whether a pipeline ran on the runner under test."""
        return any(run.is_under_test for run in self._runs)

    @property
    def other_runners(self) -> list[str]:
        """The runners that the test named itself."""
        return sorted({run.runner for run in self._runs if not run.is_under_test})

    def unsatisfied(self) -> list[str]:
        """Labels of the assertions that no run satisfied though their pipeline did not fail."""
        return [
            label
            for pipeline, label, path in self._asserted
            if not path.exists()
            and any(run.pipeline == pipeline and not run.failed for run in self._runs)
        ]

    def install(self) -> None:
        """Wrap ``Pipeline.run`` and ``assert_that``, wherever a module has them by name."""
        run, assert_that = beam_pipeline.Pipeline.run, util.assert_that

        def watched_run(pipeline: Any, *args: Any, **kwargs: Any) -> Any:
            runner = pipeline.runner
            seen = _Run(
                self._number(pipeline), runners.is_under_test(runner), type(runner).__name__
            )
            self._runs.append(seen)
            seen.result = run(pipeline, *args, **kwargs)
            return seen.result

        def watched_assert_that(
            actual: Any,
            matcher: Any,
            label: str = "assert_that",
            reify_windows: bool = False,
            use_global_window: bool = True,
        ) -> Any:
            if isinstance(matcher, util._EqualToPerWindowMatcher):  # ``assert_that`` looks, too
                reify_windows, use_global_window = True, True
            self._count += 1
            path = self.folder / str(self._count)
            if hasattr(actual, "pipeline"):
                self._asserted.append((self._number(actual.pipeline), label, path))
            return assert_that(
                actual, _leaving_a_file(matcher, str(path)), label, reify_windows, use_global_window
            )

        beam_pipeline.Pipeline.run = watched_run
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get("assert_that") is assert_that:
                vars(module)["assert_that"] = watched_assert_that


def _leaving_a_file(matcher: Any, path: str) -> Any:
    """Wrap a matcher. A closure: those travel to workers by value."""

    def satisfied(actual):  # type: ignore[no-untyped-def]  # Beam reads annotations as type hints
        result = matcher(actual)
        with open(path, "a"):
            pass
        return result

    return satisfied
