"""The metrics of jobs as Prometheus metric families.

Their names end with the unit, as is Prometheus's convention. The namespaces and names of users'
metrics are labels, since they may have characters that names of families must not have.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.job.export.users_metrics import JOB, UsersMetrics, of_users
from beam_spark_runner.job.run.job import Job
from beam_spark_runner.job.watching.stream_watch import StreamWatch
from beam_spark_runner.observing.epoch_status import EpochStatus
from beam_spark_runner.portable.monitoring import element_counts, to_metric_results


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """A running job, and the name that its user has given it; empty: none."""

    name: str
    job: Job

    @property
    def labels(self) -> tuple[str, str]:
        return self.name, self.job.job_id

    def infos(self) -> Sequence[bytes]:
        """Return the job's newest metrics: serialised MonitoringInfos.

        They are the committed ones of a streaming pipeline. In batch, where segments are committed
        at their end only, they are the attempted ones.
        """
        return self.job.tally.committed if self.job.plan.is_streaming else self.job.attempted()

    def now_s(self) -> float:
        """Return the processing time of a stream, Unix time; a TestStream has its own."""
        return self.job.watch.processing_time_s()

    def of_users(self) -> Mapping[str, Sequence[Any]]:
        """Return the metrics of users among them, by kind."""
        return to_metric_results(self.infos(), step_names=self.job.step_names).query()


class JobsCollector(Collector):
    """Collects the current metrics of running jobs at each scrape. Threads: any.

    Args:
        jobs: Returns the running jobs.
        queue: Returns how many jobs of a server are in each state, by its word for users.
    """

    def __init__(
        self,
        jobs: Callable[[], Iterable[JobMetrics]],
        queue: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._jobs, self._queue = jobs, queue

    @override
    def collect(self) -> Iterator[Metric]:
        jobs = list(self._jobs())
        yield from of_users(UsersMetrics(job.labels, job.of_users()) for job in jobs)
        yield from _jobs_of_server(self._queue())
        yield _elements(jobs)
        streams = [
            (job, job.job.watch, status)
            for job in jobs
            if (status := job.job.watch.status) is not None
        ]
        yield from _epochs(streams)
        yield from _steps([(job, status) for job, _, status in streams])


def _jobs_of_server(queue: Mapping[str, int]) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "beam_spark_jobs",
        "Jobs of a job server by state; those that have ended, as long as it knows them.",
        labels=("state",),
    )
    for state, count in queue.items():
        family.add_metric((state,), count)
    yield family


def _gauge(name: str, text: str, *labels: str, unit: str = "") -> GaugeMetricFamily:
    return GaugeMetricFamily(f"beam_spark_{name}", text, labels=(*JOB, *labels), unit=unit)


def _counter(name: str, text: str, *labels: str, unit: str = "") -> CounterMetricFamily:
    return CounterMetricFamily(f"beam_spark_{name}", text, labels=(*JOB, *labels), unit=unit)


def _epochs(streams: Sequence[tuple[JobMetrics, StreamWatch, EpochStatus]]) -> Iterator[Metric]:
    epochs = _counter("epochs", "Epochs that are committed, in earlier runs, too.")
    last = _gauge(
        "last_epoch", "How long the last epoch took, by the part of it.", "part", unit="seconds"
    )
    total = _counter(
        "epoch_time", "How long epochs of this run took, by the part of it.", "part", unit="seconds"
    )
    state_bytes = _gauge(
        "state",
        "What the steps that share the shards of a level have stored: local copies, in use.",
        "steps",
        unit="bytes",
    )
    rates = _gauge(
        "elements_per_second",
        "Elements that a step has emitted in a second, over the last ten seconds.",
        "step",
    )
    age = _gauge("epoch_age", "How long ago this run has committed an epoch.", unit="seconds")
    failures = _counter(
        "commit_failures", "Commits of this run that storage has refused; each is tried again."
    )
    restarts = _counter("restarts", "How often the pipeline was started again on its checkpoint.")
    slopes = _gauge(
        "backlog_change_per_second",
        "By how much the backlog of a step grows in a second, over the last ten seconds.",
        "step",
    )
    partitions = _gauge("partitions", "The partitions of the last epoch's exchanges.")
    advised = _gauge("advised_partitions", "The partitions that the load of the stream asks for.")
    for job, watch, status in streams:
        partitions.add_metric(job.labels, status.partitions)
        if (advice := watch.partitions.advice) is not None:
            advised.add_metric(job.labels, advice.partitions)
        age.add_metric(job.labels, watch.epoch_age_s())
        failures.add_metric(job.labels, watch.failed_commits)
        restarts.add_metric(job.labels, max(0, status.start - 1))
        for step, slope in watch.backlog_slopes().items():
            slopes.add_metric((*job.labels, step), slope)
        for step, rate in watch.rates().items():
            rates.add_metric((*job.labels, step), rate)
        epochs.add_metric(job.labels, status.epoch)
        for part, took_us in status.parts_us.items():
            last.add_metric((*job.labels, part.value), took_us / 1e6)
            total.add_metric((*job.labels, part.value), watch.took_us[part] / 1e6)
        for steps, size in status.stored_bytes.items():
            state_bytes.add_metric((*job.labels, steps), size)
    yield from (epochs, last, total, state_bytes, rates, age, failures, restarts, slopes)
    yield from (partitions, advised)


def _steps(streams: Sequence[tuple[JobMetrics, EpochStatus]]) -> Iterator[Metric]:
    arriving = _gauge(
        "input_watermark_timestamp",
        "The watermark of a step's input, as Unix time; -Inf and +Inf: the ends of time.",
        "step",
        unit="seconds",
    )
    leaving = _gauge(
        "output_watermark_timestamp", "The same of its output.", "step", unit="seconds"
    )
    lag = _gauge(
        "watermark_lag",
        "By how much the output watermark is behind the processing time; 0 for finished steps.",
        "step",
        unit="seconds",
    )
    hold = _gauge(
        "watermark_hold_timestamp",
        "Where a step holds the watermark of its output, and what does; only while it does.",
        *("step", "held_by"),
        unit="seconds",
    )
    restrictions = _gauge(
        "pending_restrictions", "Restrictions of a splittable DoFn that are stored.", "step"
    )
    backlog = _gauge(
        "backlog", "Their size, in the unit of their provider: often bytes, or offsets.", "step"
    )
    pending_records = _gauge(
        "pending_records",
        "Elements and timers of a declarative step that wait for reads in the next epoch.",
        "step",
    )
    for job, status in streams:
        for name, step in status.steps.items():
            labels = (*job.labels, name)
            arriving.add_metric(labels, _seconds(step.input_us))
            leaving.add_metric(labels, _seconds(step.output_us))
            lag.add_metric(labels, max(0.0, job.now_s() - _seconds(step.output_us)))
            if step.hold is not None:
                held_by = step.hold.holder.value
                hold.add_metric((*labels, held_by), _seconds(step.hold.at_us))
            if step.restrictions is not None:
                restrictions.add_metric(labels, step.restrictions)
                if step.backlog is not None:
                    backlog.add_metric(labels, step.backlog)
            if step.left is not None:
                pending_records.add_metric(labels, step.left)
    yield from (arriving, leaving, lag, hold, restrictions, backlog, pending_records)


def _elements(jobs: Sequence[JobMetrics]) -> Metric:
    family = _counter("elements", "Elements that a step has emitted.", "step", "output")
    for job in jobs:
        graph = job.job.plan.graph
        producers = {
            str(collection): (transform.name, tag)
            for transform in graph.transforms.values()
            for tag, collection in transform.outputs.items()
        }
        counts: dict[tuple[str, str], int] = {}
        for collection, count in element_counts(job.infos()).items():
            # Other collections are the runner's.
            if (producer := producers.get(collection)) is not None:
                counts[producer] = counts.get(producer, 0) + count
        for producer, count in counts.items():
            family.add_metric((*job.labels, *producer), count)
    return family


def _seconds(time_us: int) -> float:
    if time_us <= MIN_US:
        return float("-inf")
    return float("inf") if time_us >= MAX_US else time_us / 1e6
