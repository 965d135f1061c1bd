"""SDK harnesses that attack a job server with crafted messages.

The server and its Spark's Python workers live on, jobs of others do not notice, and each job that
fails says which SDK and step is to blame.
"""

import contextlib
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import apache_beam as beam
import grpc
import pytest
from apache_beam.coders import WindowedValueCoder
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.metrics import monitoring_infos as mi
from apache_beam.portability.api import beam_fn_api_pb2, metrics_pb2
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.window import GlobalWindow, IntervalWindow, Sessions
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.portable.wire import coder_seen_by_the_runner
from tests.harness.scripted_sdk import Pool, ScriptedSdk
from tests.harness.test_job_server import Server

pytestmark = [pytest.mark.grpc, pytest.mark.slow]

HUGE = b"\x80\x80\x80\x80\x01"
"""The length 2^28."""
RARE = pytest.mark.rare  # tests of what reads such bytes have these, too
Respond = Callable[[beam_fn_api_pb2.ProcessBundleResponse], object]
Build = Callable[[beam.Pipeline], object]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    here = Server(tmp_path_factory.mktemp("server"))
    yield here
    here.program.send(signal.SIGTERM)
    assert here.program.end(60).code == 0


class Attacker:
    """Harnesses that run all bundles as they should, but for the answers of one kind of step.

    Args:
        urn: The URN of the step.
        attack: Puts something into the response to a bundle of that step.
        output: What that step emits, as an element's value. None: nothing.
    """

    def __init__(self, urn: str, attack: Respond | None, output: Any = None) -> None:
        self._urn, self._attack, self._output = urn, attack, output
        self.pool = Pool(self._serve)

    def _serve(self, sdk: ScriptedSdk) -> None:
        """Run bundles side by side: one asks about windows while another one reads its input."""
        sdk.connect()
        bundle, descriptor = sdk.next_bundle()
        descriptors = {bundle: descriptor}
        begun = threading.Condition()
        accept = threading.Thread(target=_accept, args=(sdk, descriptors, begun), daemon=True)
        accept.start()
        for elements in sdk.elements:
            for block in elements.data:
                if block.is_last:
                    with begun:  # the two streams of a harness have no common order
                        begun.wait_for(partial(descriptors.__contains__, block.instruction_id))
                    self._finish(sdk, block.instruction_id, descriptors[block.instruction_id])

    def _finish(self, sdk: ScriptedSdk, bundle: str, descriptor: Any) -> None:
        steps = {each.spec.urn for each in descriptor.transforms.values()}
        response = beam_fn_api_pb2.ProcessBundleResponse()
        is_attacked = self._urn in steps
        for id_, each in descriptor.transforms.items():
            if each.spec.urn == "beam:runner:sink:v1":
                port = beam_fn_api_pb2.RemoteGrpcPort.FromString(each.spec.payload)
                coder = coder_seen_by_the_runner(descriptor, port.coder_id)
                value = self._output if is_attacked else _value_for(coder)
                if value is not None:
                    sdk.send(bundle, id_, _encoded(coder, value))
                sdk.send(bundle, id_, is_last=True)
        if is_attacked and self._attack is not None:
            self._attack(response)
        sdk.respond(bundle, process_bundle=response)

    def run(self, server: Server, build: Build) -> Any:
        """Run a pipeline on these harnesses, and return its result."""
        environment = f"--environment_config={self.pool.url}"
        try:
            result = server.submit(
                build, "--runner=PortableRunner", "--environment_type=EXTERNAL", environment
            )
            result.wait_until_finish()
            return result
        except RuntimeError as error:
            return error
        finally:
            self.pool.close()
            assert self.pool.errors == []


def _accept(sdk: ScriptedSdk, descriptors: dict[str, Any], begun: threading.Condition) -> None:
    with contextlib.suppress(grpc.RpcError, StopIteration):  # the runner has ended the stream
        while True:
            bundle, descriptor = sdk.next_bundle()
            with begun:
                descriptors[bundle] = descriptor
                begun.notify_all()


def _encoded(coder: WindowedValueCoder, value: Any) -> bytes:
    windows = (
        [IntervalWindow(0, 10), IntervalWindow(5, 15)]
        if "Interval" in repr(coder.window_coder)
        else [GlobalWindow()]
    )
    encode = coder.get_impl().encode_nested
    return b"".join(encode(WindowedValue(value, 0, (window,))) for window in windows)


def _value_for(coder: WindowedValueCoder) -> Any:
    """Return a value of the coder's structure."""
    return _value_of(coder.wrapped_value_coder)


def _value_of(coder: Any) -> Any:
    if coder.is_kv_coder():
        return _value_of(coder.key_coder()), _value_of(coder.value_coder())
    return 1.0 if "Float" in repr(coder) else b"x"


def one_step(pipeline: beam.Pipeline) -> None:
    pipeline | beam.Impulse() | "step" >> beam.Map(bytes.upper)


class _Ranges(RestrictionProvider):  # type: ignore[misc]
    def initial_restriction(self, element: Any) -> OffsetRange:
        return OffsetRange(0, 10)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: Any, restriction: OffsetRange) -> int:
        return 1


class _Reads(beam.DoFn):  # type: ignore[misc]
    def process(
        self,
        element: Any,
        tracker: Any = beam.DoFn.RestrictionParam(_Ranges()),  # noqa: B008
    ) -> Iterator[int]:
        yield 1


def splittable(pipeline: beam.Pipeline) -> None:
    pipeline | beam.Impulse() | "read" >> beam.ParDo(_Reads())


class _Visits(Sessions):  # type: ignore[misc]
    """Sessions that only the SDK can merge."""

    def to_runner_api_parameter(self, context: Any) -> tuple[str, bytes]:
        return "test:visits", b"gap"


def merging(pipeline: beam.Pipeline) -> None:
    windowed = pipeline | beam.Impulse() | "key" >> beam.Map(lambda x: (x, x))
    windowed | beam.WindowInto(_Visits(10)) | "group" >> beam.GroupByKey() | "use" >> beam.Map(len)


def reports(type_: str, payload: bytes) -> Respond:
    """Report a metric."""
    labels = mi.create_labels(ptransform="step", namespace="attack", name="metric")
    info = mi.create_monitoring_info(mi.USER_COUNTER_URN, type_, payload, labels)
    good = mi.int64_user_counter("attack", "good", 7, "step")
    return lambda response: response.monitoring_infos.extend([info, good])


def leaves(element: bytes) -> Respond:
    """Leave a residual."""
    application = beam_fn_api_pb2.BundleApplication(transform_id="read", element=element)
    root = beam_fn_api_pb2.DelayedBundleApplication(application=application)
    return lambda response: response.residual_roots.extend([root])


IN_NO_WINDOW = b"\x80" + bytes(7) + bytes(4) + b"\x0f" + b"\1x\1x\1x" + struct.pack(">d", 1.0)
BUCKETS = metrics_pb2.HistogramValue.BucketOptions
MANY_BUCKETS = metrics_pb2.HistogramValue(
    bucket_options=BUCKETS(linear=BUCKETS.Linear(number_of_buckets=2**31 - 1, width=1.0))
)
PAR_DO = "beam:transform:pardo:v1"
PROCESS = "beam:transform:sdf_process_sized_element_and_restrictions:v1"


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        pytest.param(mi.STRING_SET_TYPE, b"\0\0\0\1" + HUGE, id="a string of 2^28 bytes"),
        pytest.param(
            mi.DISTRIBUTION_INT64_TYPE, b"\1", id="a distribution that is cut", marks=RARE
        ),
        pytest.param(mi.SUM_INT64_TYPE, b"", id="an empty counter", marks=RARE),
        pytest.param(mi.HISTOGRAM_TYPE, MANY_BUCKETS.SerializeToString(), id="2^31 buckets"),
    ],
)
def test_metrics(type_: str, payload: bytes, server: Server) -> None:
    result = Attacker(PAR_DO, reports(type_, payload)).run(server, one_step)
    assert result.state == "DONE"
    found = result.metrics().query()
    assert [
        (each.key.metric.name, each.committed) for group in found.values() for each in group
    ] == [("good", 7)]
    messages = "\n".join(_warnings(server))
    assert "has sent a value of the metric 'attack:metric of step' that is not counted" in messages
    assert "apache/beam_python3" in messages


def _warnings(server: Server) -> list[str]:
    log = Path(server.program.folder, "stderr").read_text()
    return [line for line in log.splitlines() if "metric" in line]


@pytest.mark.parametrize(
    ("element", "problem"),
    [
        pytest.param(b"", "0 elements in place of one", id="empty", marks=RARE),
        pytest.param(b"\0\0\0\1" + HUGE, "ends within an element", id="of 2^28 bytes"),
        pytest.param(IN_NO_WINDOW, "in no window", id="in no window", marks=RARE),
    ],
)
def test_residuals(element: bytes, problem: str, server: Server) -> None:
    error = Attacker(PROCESS, leaves(element)).run(server, splittable)
    assert problem in str(error)
    assert "read" in str(error)
    assert "sent a residual" in str(error)
    assert "apache/beam_python3" in str(error)


@pytest.mark.parametrize(
    "answer", [pytest.param(b"", marks=RARE), b"\0\0\0\1" + HUGE, b"\1k" + bytes(7) + b"\1" + HUGE]
)
def test_merged_windows(answer: bytes, server: Server) -> None:
    attacker = Attacker("beam:transform:merge_windows:v1", None, answer)
    error = attacker.run(server, merging)
    assert "group" in str(error)
    assert "was asked about windows, and its answer is wrong" in str(error)


def test_the_server_and_its_workers_have_lived_on(server: Server, tmp_path: Path) -> None:
    """After all attacks above: a job of another client, and no worker that has crashed."""
    file = tmp_path / "found"

    def note(element: bytes) -> None:
        file.touch()

    result = server.submit(
        lambda p: p | beam.Impulse() | beam.Map(note),
        *("--runner=PortableRunner", "--environment_type=LOOPBACK"),
    )
    assert result.wait_until_finish() == "DONE"
    assert file.exists()
    log = Path(server.program.folder, "stderr").read_text()
    assert "crashed" not in log
    assert "Spark failed" not in log
