"""``JobService`` of Beam's Job API."""

from collections.abc import Callable, Iterator
from typing import Any

from apache_beam.portability.api import (
    beam_job_api_pb2,
    beam_job_api_pb2_grpc,
    beam_runner_api_pb2,
    endpoints_pb2,
)
from typing_extensions import override

from beam_spark_runner.job.access import CONTINUES_STREAMS, SPARK_UI_URL
from beam_spark_runner.job.server.client_options import descriptors
from beam_spark_runner.job.server.jobs import Jobs
from beam_spark_runner.job.server.refusals import (
    SuspendedJobError,
    refuses,
    refuses_in_stream,
)
from beam_spark_runner.job.watching.record import JobRecord, StateChange

_CANCELS_WITHIN_S = 5.0


class JobService(beam_job_api_pb2_grpc.JobServiceServicer):  # type: ignore[misc]
    """The gRPC servicer of ``Jobs``.

    The id of a job differs from that of its preparation: Beam's clients limit the time of streams
    of states and messages to some minutes if both ids are the same.

    Args:
        jobs: The jobs of the server.
        artifact_url: HOST:PORT at which clients stage files.
        spark_ui_url: Returns the URL of the jobs' Spark UI. None: it has none.
        continues_streams: Whether the next server continues streams.
    """

    def __init__(
        self,
        jobs: Jobs,
        artifact_url: str,
        spark_ui_url: Callable[[], str | None],
        *,
        continues_streams: bool = False,
    ) -> None:
        self._jobs = jobs
        self._artifact_url = artifact_url
        self._spark_ui_url, self._continues_streams = spark_ui_url, continues_streams

    @refuses
    @override
    def Prepare(self, request: Any, context: Any) -> Any:
        id_ = self._jobs.prepare(request)
        return beam_job_api_pb2.PrepareJobResponse(
            preparation_id=id_,
            artifact_staging_endpoint=endpoints_pb2.ApiServiceDescriptor(url=self._artifact_url),
            staging_session_token=id_,
        )

    @refuses
    @override
    def Run(self, request: Any, context: Any) -> Any:
        id_ = self._jobs.run(request.preparation_id, context.peer())
        return beam_job_api_pb2.RunJobResponse(job_id=id_)

    @refuses
    def GetJobs(self, request: Any, context: Any) -> Any:
        """Return all jobs that wait, run, or are among the latest that have ended."""
        return beam_job_api_pb2.GetJobsResponse(
            job_info=[
                beam_job_api_pb2.JobInfo(
                    job_id=job.job_id,
                    job_name=job.submitted.name,
                    pipeline_options=job.options,
                    state=_state_of(job.record.state),
                )
                for job in self._jobs.all()
            ]
        )

    @refuses
    def GetState(self, request: Any, context: Any) -> Any:
        """Return the current state of a job, and when it was entered."""
        return _to_event(self._jobs.job(request.job_id).record.states.events()[-1])

    @refuses
    def GetPipeline(self, request: Any, context: Any) -> Any:
        """Return the pipeline of a job as it was submitted."""
        coded = self._jobs.job(request.job_id).submitted.coded_pipeline
        return beam_job_api_pb2.GetJobPipelineResponse(
            pipeline=beam_runner_api_pb2.Pipeline.FromString(coded)
        )

    @refuses
    def Cancel(self, request: Any, context: Any) -> Any:
        """Cancel a job, and wait for its end, but no longer than some seconds."""
        job = self._jobs.cancel(request.job_id)
        has_ended = job.wait(_CANCELS_WITHIN_S)
        return beam_job_api_pb2.CancelJobResponse(
            state=_state_of(job.record.state) if has_ended else beam_job_api_pb2.JobState.CANCELLING
        )

    @refuses
    def Drain(self, request: Any, context: Any) -> Any:
        """Let the sources of a streaming job end; do not wait for its end."""
        job = self._jobs.job(request.job_id)
        job.drain()
        return beam_job_api_pb2.DrainJobResponse(state=_state_of(job.record.state))

    @refuses_in_stream
    def GetStateStream(self, request: Any, context: Any) -> Iterator[Any]:
        """Send all states of a job, from the first one on, until it has ended."""
        record = self._jobs.job(request.job_id).record
        context.add_callback(record.states.wake)
        yield from map(_to_event, record.states.follow(context.is_active))
        _check_that_it_is_over(record)

    @refuses_in_stream
    def GetMessageStream(self, request: Any, context: Any) -> Iterator[Any]:
        """Send the stored messages and states of a job, and new ones until it has ended."""
        record = self._jobs.job(request.job_id).record
        context.add_callback(record.events.wake)
        for event in record.events.follow(context.is_active):
            if isinstance(event, StateChange):
                yield beam_job_api_pb2.JobMessagesResponse(state_response=_to_event(event))
            else:
                yield beam_job_api_pb2.JobMessagesResponse(message_response=event)
        _check_that_it_is_over(record)

    @refuses
    def GetJobMetrics(self, request: Any, context: Any) -> Any:
        """Return the metrics of a job so far."""
        return beam_job_api_pb2.GetJobMetricsResponse(
            metrics=self._jobs.job(request.job_id).metrics()
        )

    @refuses
    def DescribePipelineOptions(self, request: Any, context: Any) -> Any:
        """Return the runner's own options; in the metadata, what clients should know first.

        It is the first call of each client, and Beam's messages have no place for such facts.
        """
        url = self._spark_ui_url()
        facts = [] if url is None else [(SPARK_UI_URL, url)]
        if self._continues_streams:
            facts.append(CONTINUES_STREAMS)
        context.set_trailing_metadata(tuple(facts))
        return beam_job_api_pb2.DescribePipelineOptionsResponse(options=descriptors())


def _check_that_it_is_over(record: JobRecord) -> None:
    """Check that the last event was the last one of the job.

    Raises:
        SuspendedJobError: It was not; or the client has closed the stream.
    """
    if not record.has_last_state:
        raise SuspendedJobError("the job is suspended: the next job server continues it")


def _state_of(state: str) -> Any:
    return beam_job_api_pb2.JobState.Enum.Value(state)


def _to_event(change: StateChange) -> beam_job_api_pb2.JobStateEvent:
    event = beam_job_api_pb2.JobStateEvent(state=_state_of(change.state))
    event.timestamp.FromNanoseconds(round(change.at_s * 1e9))
    return event
