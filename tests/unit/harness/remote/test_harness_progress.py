"""What can be seen of a bundle from what its SDK harness answers."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from apache_beam.metrics.monitoring_infos import int64_counter
from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.harness.bundle import Activity
from beam_spark_runner.harness.remote.bundle_progress import HarnessProgress
from beam_spark_runner.harness.remote.sdk_metrics import HarnessMetrics

STEPS = {TransformId("a"): "First", TransformId("b"): "Second"}
TIME = "beam:metric:pardo_execution_time:process_bundle_msecs:v1"
COUNT = "beam:metric:element_count:v1"


def answer(times_ms: Mapping[str, int], count: int) -> beam_fn_api_pb2.InstructionResponse:
    infos = [int64_counter(TIME, ms, ptransform=id_) for id_, ms in times_ms.items()]
    infos.append(int64_counter(COUNT, count, pcollection="p"))
    return beam_fn_api_pb2.InstructionResponse(
        process_bundle_progress=beam_fn_api_pb2.ProcessBundleProgressResponse(
            monitoring_infos=infos
        )
    )


def asking(
    answers: list[beam_fn_api_pb2.InstructionResponse | None],
    status: str = "",
    *,
    is_splittable: bool = False,
) -> HarnessProgress:
    """Return what asks a harness that gives these answers."""
    ask: Callable[..., Any] = lambda request, timeout_s: answers.pop(0)  # noqa: E731
    connection: Any = SimpleNamespace(ask=ask, status=SimpleNamespace(ask=lambda timeout_s: status))
    return HarnessProgress(
        connection, HarnessMetrics("sdk"), "1", STEPS, is_splittable=is_splittable
    )


def test_the_step_is_the_one_in_which_time_passes() -> None:
    progress = asking(
        [answer({"a": 9, "b": 1}, 5), answer({"a": 9, "b": 8}, 5), answer({"a": 9, "b": 8}, 5)]
    )
    first, second, third = progress.activity(), progress.activity(), progress.activity()
    assert (first.step, second.step, third.step) == ("First", "Second", "Second")
    assert second == third  # as long as no element is counted, nothing has happened


def test_an_element_that_is_counted_is_something_that_happens() -> None:
    progress = asking([answer({"a": 9}, 5), answer({"a": 9}, 6)])
    assert progress.activity() != progress.activity()


def test_a_harness_that_does_not_answer_is_in_a_claim() -> None:
    progress = asking([answer({"b": 9}, 5), None, None], is_splittable=True)
    before, *after = (progress.activity() for _ in range(3))
    assert before.step == "Second"
    assert after == [Activity("First", before.seen)] * 2


def test_or_in_any_of_its_steps_where_none_claims() -> None:
    assert asking([None]).activity().step == "First, Second"


def test_samples_are_those_of_the_harness_if_it_has_any() -> None:
    sampled = beam_fn_api_pb2.InstructionResponse()
    elements = sampled.sample_data.element_samples["p"].elements
    elements.add(element=b"one")
    elements.add(element=b"two")
    refused = beam_fn_api_pb2.InstructionResponse(error="it cannot sample")
    progress = asking([sampled, refused, None])
    assert progress.samples() == {"p": [b"one", b"two"]}
    assert progress.samples() == progress.samples() == {}


def test_of_its_status_the_threads_that_run_bundles_are_shown() -> None:
    stuck = "--- Thread #2 name: two ---\n  in process_bundle\n  in block\n"
    other = "--- Thread #1 name: one ---\n  in wait\n"
    end = "==============================\n"
    status = f"===== THREAD DUMP =====\n{other}{stuck}{other}{end}"
    assert asking([], status).status() == stuck
    assert asking([], "goroutine 1").status() == "goroutine 1"
    assert asking([], "").status() == "nothing"
