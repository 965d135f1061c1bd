"""The progress line of a streaming pipeline."""

from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.observing.epoch_status import EpochStatus

_RATE_OVER_S = 10.0
_SAME_NAMES: Mapping[str, str] = MappingProxyType({})
_NO_RATES: Mapping[str, float] = MappingProxyType({})


class StreamLine:
    """Formats the progress line of a pipeline, again and again.

    Example:
        >>> from beam_spark_runner.observing.epoch_status import StepStatus
        >>> line, read = StreamLine(), StepStatus(input_us=0, output_us=7_000_000)
        >>> status = EpochStatus(epoch=17, steps={"Read": read})
        >>> line.parts(status, now_us=10_000_000, elements=0, now_s=0.0)
        ['epoch 17', 'watermark 3 s behind (Read)']
        >>> line.parts(status, now_us=10_000_000, elements=2_500, now_s=2.0, commit_age_s=1.2)
        ['epoch 17, 1 s ago', 'watermark 3 s behind (Read)', '1,250 elements/s']

    Args:
        steps: The names by which users know the steps, by their full names.
    """

    def __init__(self, steps: Mapping[str, str] = _SAME_NAMES) -> None:
        self._steps = steps
        self._samples: deque[tuple[float, int]] = deque()

    def parts(
        self,
        status: EpochStatus | None,
        *,
        now_us: int,
        elements: int,
        now_s: float,
        sources: Mapping[str, float] = _NO_RATES,
        commit_age_s: float | None = None,
    ) -> Sequence[str]:
        """Return the parts of the line, the most important first.

        Args:
            status: The status of the last epoch; None: no epoch is committed yet.
            now_us: The time to compare the watermark with, microseconds since the Unix epoch.
            elements: The number of elements that all sources have emitted so far.
            now_s: The time of a monotonic clock.
            sources: The elements per second of each source, shown if there are at least two.
            commit_age_s: The time since the commit of the epoch. None: not shown.
        """
        if status is None:
            return ["before the first epoch"]
        age = "" if commit_age_s is None else f", {duration_text(int(commit_age_s))} ago"
        parts = [f"epoch {status.epoch:,}{age}", self._watermark(status, now_us)]
        if (rate := self._rate(elements, now_s)) is not None:
            parts.append(f"{rate:,.0f} elements/s")
        steps = status.steps.values()
        if restrictions := sum(step.restrictions or 0 for step in steps):
            text = f"{restrictions:,} restrictions" if restrictions > 1 else "1 restriction"
            sizes = [step.backlog for step in steps if step.restrictions]
            backlogs = [size for size in sizes if size is not None]
            if backlogs and len(backlogs) == len(sizes):
                text += f", backlog {sum(backlogs):,.0f}"
            parts.append(text)
        if left := sum(step.left or 0 for step in steps):
            parts.append(f"{left:,} wait for reads")
        if len(sources) > 1:
            by_name = {self._steps.get(name, name): rate for name, rate in sources.items()}
            parts.append(f"elements/s of each source: {rates_text(by_name)}")
        return parts

    def _watermark(self, status: EpochStatus, now_us: int) -> str:
        name = status.last_step()
        if name is None:
            return "watermark at the end of time"
        output_us, step = status.steps[name].output_us, self._steps.get(name, name)
        if output_us == MIN_US:
            return f"watermark at the beginning of time ({step})"
        return f"watermark {duration_text((now_us - output_us) // 1_000_000)} behind ({step})"

    def _rate(self, elements: int, now_s: float) -> float | None:
        """Return the elements per second over the last seconds; None: not known yet."""
        self._samples.append((now_s, elements))
        while len(self._samples) > 2 and now_s - self._samples[1][0] >= _RATE_OVER_S:
            self._samples.popleft()
        first_s, first_elements = self._samples[0]
        return (elements - first_elements) / (now_s - first_s) if now_s > first_s else None


def rates_text(rates: Mapping[str, float]) -> str:
    """Format the elements per second of steps; steps that emit none are only counted.

    Example:
        >>> rates_text({"Read": 1250.4, "Sum": 0.26, "Write": 0.0, "Late": 0.0})
        'Read 1,250, Sum 0.3, none in 2 others'
        >>> rates_text({"Read": 0.0})
        'none'
    """
    texts = [
        f"{step} {rate:,.0f}" if rate >= 10 else f"{step} {rate:.1f}"
        for step, rate in rates.items()
        if rate > 0
    ]
    idle = len(rates) - len(texts)
    if idle and texts:
        texts.append("none in 1 other" if idle == 1 else f"none in {idle} others")
    return ", ".join(texts) or "none"


def duration_text(seconds: int) -> str:
    """Format a duration in its two largest units.

    Example:
        >>> [duration_text(each) for each in (-3, 59, 61, 7322, 200_000)]
        ['-3 s', '59 s', '1 min 1 s', '2 h 2 min', '2 d 7 h']
    """
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3_600:
        return f"{seconds // 60} min {seconds % 60} s"
    if seconds < 86_400:
        return f"{seconds // 3_600} h {seconds // 60 % 60} min"
    return f"{seconds // 86_400} d {seconds // 3_600 % 24} h"
