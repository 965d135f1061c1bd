"""Gathers what is known of a job. The only file of this room that looks into running jobs."""

import dataclasses
import re
import sys
import time
from collections.abc import Mapping, Sequence

from apache_beam.metrics.metric import MetricResults
from apache_beam.portability.api import beam_job_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.table_steps import READ_TABLE
from beam_spark_runner.job.page.shown_job import ShownJob
from beam_spark_runner.job.run.job import Job
from beam_spark_runner.job.watching.record import JobRecord
from beam_spark_runner.observing import job_facts
from beam_spark_runner.observing.job_facts import JobFacts, StepFigures
from beam_spark_runner.observing.message_lines import (
    DEBUG,
    ERROR,
    INFO,
    WARNING,
    MessageLine,
    message_line,
)
from beam_spark_runner.observing.step_graph import StepGraph, step_graph
from beam_spark_runner.observing.step_rates import StepRates
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.plan.explain import explain
from beam_spark_runner.plan.levels import levels
from beam_spark_runner.portable.monitoring import to_metric_results
from beam_spark_runner.portable.step_figures import Figures, figures_in
from beam_spark_runner.spark.session.launch import without_token

MAX_MESSAGES = 1_000
"""The latest messages that are shown; a download has all that are kept."""
SAMPLE_EVERY_S = 5.0
_SAMPLES = 60
_IDLE_AFTER_S = 10.0  # tasks report each second how long steps have worked
_SOURCES = (urns.SDF_PROCESS_SIZED_ELEMENT_AND_RESTRICTIONS, urns.TEST_STREAM, READ_TABLE)
_LEVELS = {
    beam_job_api_pb2.JobMessage.JOB_MESSAGE_ERROR: ERROR,
    beam_job_api_pb2.JobMessage.JOB_MESSAGE_WARNING: WARNING,
    beam_job_api_pb2.JobMessage.JOB_MESSAGE_BASIC: INFO,
}
# Spark hides what its spark.redaction.regex finds in a setting or in its value.
_SECRET = re.compile(
    r"secret|password|token|(access|account|encryption)[.]?key|credential", re.IGNORECASE
)
_HIDDEN = ("store_settings", "job_server_access", "state_store", "environment_overrides")
_DEFAULTS = RunnerConfig()


class Gatherer:
    """Gathers the facts of one job, again and again.

    After the job's end, it keeps the last facts, and not the job: a plan may have megabytes.

    Threads: one at a time.
    """

    def __init__(self) -> None:
        self._graph = StepGraph()
        self._last: JobFacts | None = None
        self._job: Job | None = None  # until its last facts are gathered
        self._plan_text = ""
        self._levels: Sequence[str] = ()  # the names of the steps of each
        self._sources: frozenset[str] = frozenset()
        self._rates = StepRates()
        self._busy_ms: Mapping[str, int] = {}
        self._shares: Mapping[str, float] = {}
        self._busy_cores, self._shared_s = 0.0, time.monotonic()
        self._samples: tuple[float, ...] = ()
        self._next_sample_s = 0.0
        self._tasks_seen_s: float | None = None

    def gather(self, shown: ShownJob, spark_url: str | None) -> JobFacts:
        """Return what is known of the job now."""
        messages = lines_of(shown.record, MAX_MESSAGES)
        common = dataclasses.replace(
            self.states_only(shown),
            messages=messages,
            error=_error_in(messages),
            spark_url=spark_url,
        )
        job = shown.job or self._job
        self._last = common if job is None else self._facts_of_running(common, job)
        self._job = None if common.has_ended else job
        return self._last

    def states_only(self, shown: ShownJob) -> JobFacts:
        """Return the last facts of the job with its present states."""
        states = tuple((change.state, change.at_s) for change in shown.record.states.events())
        last = self._last or JobFacts(job_id=shown.job_id, name=shown.name)
        return dataclasses.replace(last, state=states[-1][0], states=states, now_s=time.time())

    def _facts_of_running(self, common: JobFacts, job: Job) -> JobFacts:
        if not self._graph.nodes:
            self._describe(job)
        figures = figures_in(_infos_of(job, common))
        now_s = time.monotonic()
        self._rates.note(figures.elements, now_s)
        rates = {} if common.has_ended else self._rates.per_second(now_s)
        read = sum(figures.elements.get(id_, 0) for id_ in self._sources)
        if not common.has_ended:
            self._note_throughput(sum(rates.get(id_, 0.0) for id_ in self._sources))
            self._note_busy_time(figures.busy_ms, now_s)
        else:
            self._shares = {}
        if job.live.has_any():
            self._tasks_seen_s = common.now_s
        age_s, status = job.watch.commit_age_s(), job.watch.status
        advice = job.watch.partitions.advice
        return dataclasses.replace(
            common,
            is_streaming=job.plan.is_streaming,
            interval_us=round(job.config.batch_interval_s * 1e6),
            graph=self._graph,
            figures=self._figures_of_steps(job, _infos_of(job, common), figures, rates),
            collections=figures.elements,
            rates=rates,
            segments=len(job.plan.segments),
            segment_times=job.segments.times_until(
                common.entered_s if common.state == job_facts.DONE else None
            ),
            advised_partitions=None if advice is None else advice.partitions,
            status=status,
            committed_s=None if age_s is None else common.now_s - age_s,
            epochs=job.watch.history.latest(),
            savepoints=job.watch.savepoints,
            read_per_second=self._samples,
            read=read,
            busy_cores=self._busy_cores,
            has_tasks=job.live.has_any() if job.live.can_be_reported else None,
            tasks_seen_s=self._tasks_seen_s,
            samples=job.live.samples(),
            level_works=tuple(
                dataclasses.replace(work, steps=self._levels[work.level])
                for work in job.live.level_works()
                if work.level < len(self._levels)
            ),
            troubles=job.watch.troubles.latest(),
            lost_executors=() if common.has_ended else job.session.lost_executors(),
            plan_text=self._plan_text,
            options=options_of(job.config),
        )

    def _describe(self, job: Job) -> None:
        self._graph, self._plan_text = step_graph(job.plan), explain(job.plan)
        self._levels = [
            ", ".join(job.plan.stages[stage].name for stage in level.stages)
            for level in levels(job.plan)
        ]
        transforms = job.plan.graph.transforms.values()
        sources = [transform for transform in transforms if transform.urn in _SOURCES]
        if not sources:
            # Elements of a Create, or of a file that is read without a splittable DoFn.
            impulses = {
                id_
                for transform in transforms
                if transform.urn == urns.IMPULSE
                for id_ in transform.outputs.values()
            }
            sources = [
                transform for transform in transforms if impulses & {*transform.inputs.values()}
            ]
        self._sources = frozenset(
            str(id_) for transform in sources for id_ in transform.outputs.values()
        )

    def _note_throughput(self, per_second: float) -> None:
        """Note the throughput, unless it was just noted: viewers make the page look more often."""
        if (now_s := time.monotonic()) >= self._next_sample_s:
            self._next_sample_s = now_s + SAMPLE_EVERY_S
            self._samples = (*self._samples, per_second)[-_SAMPLES:]

    def _note_busy_time(self, busy_ms: Mapping[str, int], now_s: float) -> None:
        """Divide the time since the previous look among the steps; while there is none, keep it."""
        spent = {id_: ms - self._busy_ms.get(id_, 0) for id_, ms in busy_ms.items()}
        names = {node.id for node in self._graph.nodes}
        spent = {id_: ms for id_, ms in spent.items() if ms > 0 and id_ in names}
        total = sum(spent.values())
        if total > 0 and now_s > self._shared_s:
            self._busy_cores = total / 1e3 / (now_s - self._shared_s)
            self._shared_s = now_s
            self._busy_ms = dict(busy_ms)
            self._shares = {id_: ms / total for id_, ms in spent.items()}
        elif now_s - self._shared_s > _IDLE_AFTER_S:
            self._busy_cores = 0.0

    def _figures_of_steps(
        self, job: Job, infos: Sequence[bytes], figures: Figures, rates: Mapping[str, float]
    ) -> Mapping[str, StepFigures]:
        metrics = _metrics_in(infos, job)
        inputs: dict[str, set[str]] = {}
        for edge in self._graph.edges:
            if edge.kind.value != "side input":
                inputs.setdefault(edge.consumer, set()).add(edge.collection)
        figures_of_steps: dict[str, StepFigures] = {}
        for node in self._graph.nodes:
            sizes = [
                figures.elements.get(id_, 0) * figures.bytes_each[id_]
                for id_ in node.outputs
                if id_ in figures.bytes_each
            ]
            known_rates = [rates[id_] for id_ in node.outputs if id_ in rates]
            figures_of_steps[node.name] = StepFigures(
                taken=sum(figures.elements.get(id_, 0) for id_ in inputs.get(node.id, ())),
                emitted=sum(figures.elements.get(id_, 0) for id_ in node.outputs),
                emitted_bytes=round(sum(sizes)) if sizes else None,
                per_second=sum(known_rates) if known_rates else None,
                busy_ms=figures.busy_ms.get(node.id, 0),
                busy_share=self._shares.get(node.id, 0.0),
                metrics=tuple(metrics.get(node.name, ())),
            )
        return figures_of_steps


def lines_of(record: JobRecord, limit: int = sys.maxsize) -> tuple[MessageLine, ...]:
    """Return the messages of a job that are kept, at most so many of the newest ones."""
    return tuple(
        message_line(message.time, _LEVELS.get(message.importance, DEBUG), message.message_text)
        for message in record.messages.log.events()[-limit:]
    )


def options_of(config: RunnerConfig) -> tuple[tuple[str, str], ...]:
    """Return the options that differ from their defaults, without secrets."""
    pairs = []
    for option in dataclasses.fields(config):
        value = getattr(config, option.name)
        if option.name in _HIDDEN or value == getattr(_DEFAULTS, option.name):
            continue
        if option.name == "spark_conf":
            pairs += [
                (key, "…" if _SECRET.search(f"{key} {text}") else text) for key, text in value
            ]
        elif option.name == "spark_master_url":
            pairs.append((option.name, without_token(value)))
        else:
            pairs.append((option.name, str(value)))
    return tuple(pairs)


def _error_in(messages: tuple[MessageLine, ...]) -> str:
    """Return the reason of a failure: the only message of the highest importance."""
    for line in reversed(messages):
        if line.level == ERROR:
            return f"{line.text}\n\n{line.trace}" if line.trace else line.text
    return ""


def _infos_of(job: Job, common: JobFacts) -> Sequence[bytes]:
    """Return what counts; while a bounded job runs, also what its tasks have just done."""
    is_certain = job.plan.is_streaming or common.state == job_facts.DONE
    return tuple(job.tally.committed if is_certain else job.attempted())


def _metrics_in(infos: Sequence[bytes], job: Job) -> Mapping[str, list[tuple[str, str]]]:
    """Return the users' metrics of each step, as text."""
    by_step: dict[str, list[tuple[str, str]]] = {}
    for group, results in to_metric_results(infos, step_names=job.step_names).query().items():
        for result in results:
            name, value = result.key.metric, result.result
            if value is None:
                continue
            if group == MetricResults.DISTRIBUTIONS:
                mean = value.sum / value.count if value.count else 0.0
                text = f"{value.count:,} values, {value.min:,} to {value.max:,}, mean {mean:,.1f}"
            elif group == MetricResults.GAUGES:
                text = f"{value.value:,}"
            else:
                text = f"{value:,}" if isinstance(value, int) else str(value)
            by_step.setdefault(result.key.step or "", []).append(
                (f"{name.namespace}:{name.name}", text)
            )
    return by_step
