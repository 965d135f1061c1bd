"""Requests the progress of a running bundle from its SDK harness."""

import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.core.ids import PCollectionId, TransformId
from beam_spark_runner.harness.bundle import Activity
from beam_spark_runner.harness.fn_api.connection import SdkConnection
from beam_spark_runner.harness.remote.sdk_metrics import HarnessMetrics

_TIMEOUT_S = 1.0
_STATUS_TIMEOUT_S = 5.0
_COUNTS = frozenset({"beam:metric:element_count:v1", "beam:metric:data_channel:read_index:v1"})
_TIMES = re.compile(r"beam:metric:pardo_execution_time:\w+_bundle_msecs:v1")
_THREADS = re.compile(r"^--- Thread #.*?(?=^--- Thread #|^=====|\Z)", re.MULTILINE | re.DOTALL)
_RUNS_A_BUNDLE = "process_bundle"  # a function of Python's SDK


class HarnessProgress:
    """Requests the progress of one bundle.

    Threads: ``ask`` any, the rest one.

    Args:
        connection: The connection to the harness.
        metrics: Checks the metrics of the harness.
        instruction: The id of the bundle's instruction.
        step_names: The full names of the stage's steps; a splittable DoFn is the first.
        is_splittable: Whether the first step is a splittable DoFn.
    """

    def __init__(
        self,
        connection: SdkConnection,
        metrics: HarnessMetrics,
        instruction: str,
        step_names: Mapping[TransformId, str],
        *,
        is_splittable: bool,
    ) -> None:
        self._connection = connection
        self._metrics = metrics
        self._instruction = instruction
        self._step_names = step_names
        self._claims_in: str | None = None
        if is_splittable:
            self._claims_in = next(iter(step_names.values()), None)
        self._counts: Hashable = ()
        self._times_ms: dict[str, int] = {}
        self._busiest = ", ".join(dict.fromkeys(step_names.values()))

    def ask(self, timeout_s: float) -> beam_fn_api_pb2.InstructionResponse | None:
        """Return the response to a ProcessBundleProgressRequest; None: none arrived in time."""
        progress = beam_fn_api_pb2.ProcessBundleProgressRequest(instruction_id=self._instruction)
        request = beam_fn_api_pb2.InstructionRequest(process_bundle_progress=progress)
        return self._connection.ask(request, timeout_s)

    def infos(self) -> Sequence[bytes]:
        """See ``Bundle.progress``."""
        return self._metrics.sound(self._infos() or ())

    def _infos(self) -> Sequence[Any] | None:
        answer = self.ask(_TIMEOUT_S)
        if answer is None or answer.error:
            return None
        infos: Sequence[Any] = answer.process_bundle_progress.monitoring_infos
        return infos

    def activity(self) -> Activity:
        """Return the step that the harness executes, and its element counts so far.

        The step is the one in which most time has passed since the last call. If the harness does
        not answer, its splittable DoFn, if it has one, is in a claim, which locks the tracker.
        """
        infos = self._infos()
        if infos is None:
            return Activity(self._claims_in or self._busiest, self._counts)
        counts: list[tuple[Any, ...]] = []
        times_ms: dict[str, int] = {}
        for info in infos:
            if info.urn in _COUNTS:
                counts.append((info.urn, *sorted(info.labels.items()), info.payload))
            elif _TIMES.fullmatch(info.urn):
                step = self._step_names.get(TransformId(info.labels.get("PTRANSFORM", "")), "")
                times_ms[step] = times_ms.get(step, 0) + (self._metrics.counter(info) or 0)
        grown_ms = {step: ms - self._times_ms.get(step, 0) for step, ms in times_ms.items() if step}
        if any(grown_ms.values()):
            self._busiest = max(grown_ms, key=grown_ms.__getitem__)
        self._times_ms, self._counts = times_ms, tuple(sorted(counts))
        return Activity(self._busiest, self._counts)

    def samples(self) -> Mapping[PCollectionId, Sequence[bytes]]:
        """Return the elements that the harness has sampled since the last call; see ``Bundle``.

        It samples only with ``--experiments=enable_data_sampling``, and only if it can
        (``beam:protocol:data_sampling:v1``). Its other bundles' elements are among them.
        """
        request = beam_fn_api_pb2.InstructionRequest(
            sample_data=beam_fn_api_pb2.SampleDataRequest()
        )
        answer = self._connection.ask(request, _TIMEOUT_S)
        if answer is None or answer.error:
            return {}
        return {
            PCollectionId(collection): [sample.element for sample in samples.elements]
            for collection, samples in answer.sample_data.element_samples.items()
        }

    def status(self) -> str:
        """Return the stacks of the harness's threads that run bundles.

        If the harness is not of the Python SDK, the whole text of its status is returned.
        """
        text = self._connection.status.ask(_STATUS_TIMEOUT_S) or "nothing"
        threads = [thread for thread in _THREADS.findall(text) if _RUNS_A_BUNDLE in thread]
        return "".join(threads) or text
