"""Reports to a server of OpenLineage what a pipeline reads and writes, and how it ends.

A thread of the job does so. A server that does not answer delays the end of the program by some
seconds, and nothing else.
"""

import logging
import os
import threading
import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes, urlsplit

from apache_beam.metrics.metric import Lineage, MetricResults, MetricsFilter
from apache_beam.runners.runner import PipelineState

from beam_spark_runner.core.rendering import message_of
from beam_spark_runner.core.version import VERSION
from beam_spark_runner.job.run.job import Job
from beam_spark_runner.observing.datasets import Dataset, Datasets, reported, tables_in
from beam_spark_runner.portable.monitoring import to_metric_results

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

_LOGGER = logging.getLogger(__name__)
_PRODUCER = f"urn:beam-spark-runner:{VERSION}"  # a URI, as the specification asks for
_TIMEOUT_S = 5.0
_RETRY = {"total": 1, "backoff_factor": 0.3, "status_forcelist": [502, 503, 504]}
_AGAIN_S = 60.0  # a stream finds more data sets while it runs
_ENDS = {PipelineState.FAILED: "FAIL", PipelineState.CANCELLED: "ABORT"}


def report_lineage(job: Job, name: str, url: str) -> threading.Thread:
    """Report the run of a job that has started, until it ends.

    Args:
        job: The job.
        name: Of the pipeline.
        url: Of the server.

    Returns:
        The thread. It is no daemon: the program waits for it when it ends.
    """
    thread = threading.Thread(target=_Run(job, name, url).report, name=f"beam-lineage-{job.job_id}")
    thread.start()
    return thread


class _Run:
    """One run of a job, as OpenLineage sees it."""

    def __init__(self, job: Job, name: str, url: str) -> None:
        self._job, self._name = job, name
        self._url, self._user = _without_user(url)
        self._id = str(uuid.uuid4())
        self._has_failed = False
        self._client: OpenLineageClient | None = None

    def report(self) -> None:
        """Send the events of the run; of a job that a later start continues, no end."""
        known = self._datasets(Datasets())
        self._send("START", known)
        while not self._job.wait(_AGAIN_S):
            if (found := self._datasets(known)) != known:
                known = found
                self._send("RUNNING", known)
        if self._job.is_over:
            self._send(_ENDS.get(self._job.state, "COMPLETE"), self._datasets(known))

    def _datasets(self, known: Datasets) -> Datasets:
        """Return the data sets found so far; those already known, if they cannot be found."""
        job = self._job
        try:
            results = to_metric_results(
                job.tally.committed, job.attempted(), step_names=job.step_names
            )
            return tables_in(job.plan.graph) | Datasets(
                reported(_names(results, Lineage.SOURCE)), reported(_names(results, Lineage.SINK))
            )
        except Exception as error:  # of what users' steps have reported, or name
            self._warn("the data sets cannot be named", error)
            return known

    def _send(self, kind: str, datasets: Datasets) -> None:
        try:
            self._open().emit(self._event(kind, datasets))
        except Exception as error:  # of any transport
            self._warn(f"{urlsplit(self._url).netloc} did not take the event {kind}", error)

    def _warn(self, what: str, error: Exception) -> None:
        """Log the first failure of a run, and no other."""
        if not self._has_failed:
            _LOGGER.warning(
                "the lineage of the pipeline is incomplete: %s: %s", what, message_of(error)
            )
        self._has_failed = True

    def _open(self) -> "OpenLineageClient":
        if self._client is None:
            from openlineage.client import OpenLineageClient  # an extra
            from openlineage.client.transport.http import (
                ApiKeyTokenProvider,
                HttpConfig,
                HttpTransport,
            )

            config = HttpConfig(url=self._url, timeout=_TIMEOUT_S, retry=_RETRY)
            if key := os.environ.get("OPENLINEAGE_API_KEY"):
                config.auth = ApiKeyTokenProvider({"apiKey": key})
            transport = HttpTransport(config)
            if self._user is not None:
                transport.session.auth = self._user
            self._client = OpenLineageClient(transport=transport)
        return self._client

    def _event(self, kind: str, datasets: Datasets) -> Any:
        from openlineage.client import event_v2
        from openlineage.client.facet_v2 import error_message_run, job_type_job

        facets: dict[str, Any] = {}
        if self._job.error is not None and kind == "FAIL":
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                message=message_of(self._job.error), programmingLanguage="python"
            )
        how = job_type_job.JobTypeJobFacet(
            processingType="STREAMING" if self._job.plan.is_streaming else "BATCH",
            integration="BEAM",
            jobType="PIPELINE",
        )
        namespace = os.environ.get("OPENLINEAGE_NAMESPACE", "default")
        return event_v2.RunEvent(
            eventType=event_v2.RunState[kind],
            eventTime=datetime.now(timezone.utc).isoformat(),
            producer=_PRODUCER,
            run=event_v2.Run(runId=self._id, facets=facets),
            job=event_v2.Job(namespace=namespace, name=self._name, facets={"jobType": how}),
            inputs=[event_v2.InputDataset(*each) for each in _sorted(datasets.inputs)],
            outputs=[event_v2.OutputDataset(*each) for each in _sorted(datasets.outputs)],
        )


def _without_user(url: str) -> tuple[str, tuple[bytes, bytes] | None]:
    """Return a URL without user and password, which errors would show, and both of them."""
    parts = urlsplit(url)
    user, at, place = parts.netloc.rpartition("@")
    if not at:
        return url, None
    name, _, password = user.partition(":")
    shown = parts._replace(netloc=place).geturl()
    return shown, (unquote_to_bytes(name), unquote_to_bytes(password))


def _names(results: Any, label: str) -> Iterator[Sequence[str]]:
    """Yield the parts of the names that sources or sinks have reported in metrics."""
    filter_ = MetricsFilter().with_namespace(Lineage.LINEAGE_NAMESPACE).with_name(label)
    for metric in results.query(filter_)[MetricResults.BOUNDED_TRIES]:
        for trie in filter(None, (metric.committed, metric.attempted)):
            for *parts, is_cut in trie.flattened():
                yield (*parts, "*") if is_cut else parts


def _sorted(datasets: frozenset[Dataset]) -> list[Dataset]:
    return sorted(datasets)
