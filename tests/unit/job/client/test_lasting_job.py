"""Calls about a stored job while its server is away, and after it has been started again."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from apache_beam.portability.api import beam_job_api_pb2

from beam_spark_runner.core.errors import JobServerLostError
from beam_spark_runner.job.client.lasting_job import LastingJob

STATE = beam_job_api_pb2.JobState


class _CallError(grpc.RpcError):  # type: ignore[misc]
    def __init__(self, code: Any) -> None:
        super().__init__()
        self._code = code

    def code(self) -> Any:
        return self._code

    def details(self) -> str:
        return "a reason"


def lost(code: Any = grpc.StatusCode.UNAVAILABLE) -> Exception:
    return _CallError(code)


class Stub:
    """A job service whose calls answer what a test says, one after another."""

    def __init__(self, *calls: list[Any]) -> None:
        self._calls = list(calls)

    def _next(self, _: Any) -> Iterator[Any]:
        for each in self._calls.pop(0):
            if isinstance(each, Exception):
                raise each
            yield each

    def Run(self, request: Any) -> Any:
        return next(self._next(request))

    GetStateStream = GetMessageStream = _next


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def job(stub: Stub, clock: Clock | None = None, timeout_s: float = 60.0) -> LastingJob:
    clock = clock or Clock()
    return LastingJob(stub, "host:1", timeout_s, sleep=clock.sleep, now_s=lambda: clock.now_s)


def state(name: str, at_s: int = 0) -> Any:
    event = beam_job_api_pb2.JobStateEvent(state=STATE.Enum.Value(name))
    event.timestamp.FromSeconds(at_s)
    return event


def message(id_: str) -> Any:
    found = beam_job_api_pb2.JobMessage(message_id=id_, message_text=id_)
    return beam_job_api_pb2.JobMessagesResponse(message_response=found)


def state_message(name: str, at_s: int) -> Any:
    return beam_job_api_pb2.JobMessagesResponse(state_response=state(name, at_s))


def test_states_continue_after_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    stub = Stub(
        [state("RUNNING", 1), lost()],
        [lost()],
        [lost(grpc.StatusCode.NOT_FOUND)],  # of the old server, which is closing
        [state("RUNNING", 1), state("STOPPED", 2), state("DONE", 3)],
    )
    found = [each.state for each in job(stub).states()]
    assert found == [STATE.RUNNING, STATE.RUNNING, STATE.STOPPED, STATE.DONE]
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 2
    assert "it is waited for, 300 s at most" in texts[0]
    assert texts[1] == "the job server at host:1 answers again"


@pytest.mark.parametrize(("timeout_s", "waited_s"), [(60.0, 300.0), (900.0, 900.0)])
def test_a_server_that_stays_away_is_given_up(timeout_s: float, waited_s: float) -> None:
    clock, stub = Clock(), Stub(*([lost()] for _ in range(2_000)))
    with pytest.raises(JobServerLostError, match="continues once the server is started again"):
        list(job(stub, clock, timeout_s).states())
    assert clock.now_s == waited_s
    assert list(job(Stub(*([lost()] for _ in range(2_000)))).messages()) == []


def test_a_server_that_has_suspended_the_job_is_given_up() -> None:
    """It sends what it knows, and then says that another one continues the job."""
    clock, calls = Clock(), [[state("RUNNING", 3), lost()] for _ in range(2_000)]
    with pytest.raises(JobServerLostError):
        list(job(Stub(*calls), clock).states())
    assert clock.now_s == 300.0


def test_a_server_that_comes_back_again_and_again_is_waited_for_each_time() -> None:
    clock = Clock()

    class Slow(Stub):
        def GetStateStream(self, request: Any) -> Iterator[Any]:
            clock.now_s += 200.0
            return self._next(request)

    calls = [[state("RUNNING", n), lost()] for n in range(5)] + [[state("DONE", 5)]]
    assert len(list(job(Slow(*calls), clock).states())) == 6


@pytest.mark.parametrize("call", [lambda job: list(job.states()), lambda job: list(job.messages())])
@pytest.mark.parametrize("code", [grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INTERNAL])
def test_a_server_that_refuses_is_not_waited_for(call: Callable[[Any], Any], code: Any) -> None:
    with pytest.raises(grpc.RpcError):
        call(job(Stub([lost(code)])))


def test_messages_are_yielded_once() -> None:
    stub = Stub(
        [message("1"), state_message("RUNNING", 5), message("2"), lost()],
        [
            *(message("1"), state_message("RUNNING", 5), message("2")),
            # What the first server has lost was never read; ids of the next one begin again.
            *(state_message("STOPPED", 9), message("2.1"), lost()),
        ],
        [message("1"), message("2.1"), message("2.2"), message("10.1"), message("odd")],
    )
    found = [
        each.message_response.message_id or STATE.Enum.Name(each.state_response.state)
        for each in job(stub).messages()
    ]
    assert found == ["1", "RUNNING", "2", "STOPPED", "2.1", "2.2", "10.1", "odd"]


class RunStub(Stub):
    """A job service that notes which preparations it has run."""

    def __init__(self, *calls: list[Any]) -> None:
        super().__init__(*calls)
        self.asked: list[str] = []

    def Run(self, request: Any) -> Any:
        self.asked.append(request.preparation_id)
        return super().Run(request)


def test_a_lost_answer_of_run_is_asked_for_again() -> None:
    stub = RunStub([lost()], [lost()], [beam_job_api_pb2.RunJobResponse(job_id="id")])
    assert job(stub).run_job("first", lambda: pytest.fail("it was not lost")) == "id"
    assert stub.asked == ["first"] * 3


def test_a_pipeline_that_was_not_stored_is_prepared_on_the_next_server() -> None:
    unknown, answer = lost(grpc.StatusCode.NOT_FOUND), beam_job_api_pb2.RunJobResponse(job_id="id")
    stub = RunStub([lost()], [unknown], [lost()], [unknown], [answer])
    again = iter(["second", "third"])
    assert job(stub).run_job("first", lambda: next(again)) == "id"
    assert stub.asked == ["first", "first", "second", "second", "third"]


def test_a_server_that_is_lost_while_a_pipeline_is_prepared_again_is_waited_for() -> None:
    unknown, answer = lost(grpc.StatusCode.NOT_FOUND), beam_job_api_pb2.RunJobResponse(job_id="id")
    stub = RunStub([lost()], [unknown], [unknown], [answer])
    outcomes: Iterator[str | Exception] = iter([lost(), "second"])

    def prepare() -> str:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert job(stub).run_job("first", prepare) == "id"
    assert stub.asked == ["first", "first", "first", "second"]


def test_a_preparation_that_was_never_known_is_refused() -> None:
    with pytest.raises(grpc.RpcError):
        job(Stub([lost(grpc.StatusCode.NOT_FOUND)])).run_job(
            "first", lambda: pytest.fail("prepared")
        )
