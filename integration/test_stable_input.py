"""What a step sees when Spark really runs its task again: local[2] alone never does."""

import json
from pathlib import Path

import pytest

from tests.cli.programs import run

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# The Python SDK has no annotation for stable input: it is set in the proto, as Java does.
SCRIPT = """
    import json, random, uuid
    from apache_beam.testing.test_stream import TestStream
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.portability.api import beam_runner_api_pb2
    from beam_spark_runner import SparkPortableRunner

    class Send(beam.DoFn):
        def start_bundle(self):
            self._seen = []

        def process(self, element):
            self._seen.append(repr(element))
            if {fails_at!r} in repr(element) and not os.path.exists("failed"):
                open("failed", "x").close()
                self.finish_bundle()
                raise ValueError("the first attempt fails")

        def finish_bundle(self):
            with open(f"sent-{{uuid.uuid4().hex}}", "w") as file:
                json.dump(self._seen, file)

    options = PipelineOptions(OPTIONS)
    p = beam.Pipeline(runner=SparkPortableRunner(), options=options)
    pairs = p | {source} | beam.Map(lambda n: (n % 6, (n, random.random())))
    pairs {between} | "send" >> beam.ParDo(Send())
    proto = p.to_runner_api()
    for each in proto.components.transforms.values():
        if each.unique_name == "send" and each.spec.urn == "beam:transform:pardo:v1":
            par_do = beam_runner_api_pb2.ParDoPayload.FromString(each.spec.payload)
            par_do.requires_stable_input = {is_stable}
            each.spec.payload = par_do.SerializeToString()
    if {is_stable}:
        proto.requirements.append("beam:requirement:pardo:stable_input:v1")
    print(SparkPortableRunner().run_portable_pipeline(proto, options).wait_until_finish())
    """
CREATED = "beam.Create(range(60))"
PLAYED = "TestStream().add_elements(range(60)).advance_watermark_to_infinity()"
GROUPED = "| beam.WindowInto(beam.window.FixedWindows(60)) | beam.GroupByKey()"
SPREAD = "| beam.Reshuffle() | beam.Map(lambda kv: (kv[0], kv[1], random.random()))"


@pytest.mark.parametrize("source", [CREATED, PLAYED], ids=["batch", "stream"])
@pytest.mark.parametrize(
    ("between", "fails_at", "count"),
    [
        pytest.param(SPREAD, "(44,", 60, id="drawn right before"),
        pytest.param(GROUPED, "(44,", 6, id="after a GroupByKey"),
    ],
)
def test_a_retry_sees_what_the_first_attempt_saw(
    tmp_path: Path, source: str, between: str, fails_at: str, count: int
) -> None:
    script = SCRIPT.format(source=source, between=between, fails_at=fails_at, is_stable=True)
    ended = run(tmp_path, script, "--spark_master_url=local[2,3]")
    assert (ended.code, ended.out) == (0, "DONE\n"), ended.err
    assert (tmp_path / "failed").exists()
    sent = [element for file in tmp_path.glob("sent-*") for element in json.loads(file.read_text())]
    assert len(sent) > count  # some were sent by both attempts
    assert len(set(sent)) == count


def test_without_the_requirement_it_sees_others(tmp_path: Path) -> None:
    """Else the test above would show nothing."""
    script = SCRIPT.format(source=CREATED, between=SPREAD, fails_at="(44,", is_stable=False)
    ended = run(tmp_path, script, "--spark_master_url=local[2,3]")
    assert (ended.code, ended.out) == (0, "DONE\n"), ended.err
    sent = [element for file in tmp_path.glob("sent-*") for element in json.loads(file.read_text())]
    assert len(set(sent)) > 60
