"""What counts as a pass of a Go test: what the job server says of its jobs."""

import dataclasses
from pathlib import Path

import apache_beam
import pytest
from apache_beam.portability.api import beam_runner_api_pb2

from integration.go_sdk.evidence import EndedJob, missing
from integration.go_sdk.ledger import ExpectationsError, load, surprises
from integration.go_sdk.programs import PACKAGES
from integration.go_sdk.run import Outcome, Verdict

COMBINE = "beam:transform:combine_per_key:v1"


def pipeline() -> beam_runner_api_pb2.Pipeline:
    """passert.Equals as Go builds it: ``diff`` reads two side inputs, ``fail`` what differs."""
    made = beam_runner_api_pb2.Pipeline()

    def step(id_: str, name: str, urn: str, inputs: list[str], outputs: list[str]) -> None:
        transform = made.components.transforms[id_]
        transform.unique_name, transform.spec.urn = name, f"beam:transform:{urn}:v1"
        transform.inputs.update({f"i{n}": each for n, each in enumerate(inputs)})
        transform.outputs.update({f"i{n}": each for n, each in enumerate(outputs)})
        if urn == "pardo":
            payload = beam_runner_api_pb2.ParDoPayload()
            for n in range(1, len(inputs)):
                payload.side_inputs[f"i{n}"].SetInParent()
            transform.spec.payload = payload.SerializeToString()

    step("e1", "Impulse", "impulse", [], ["n1"])
    step("e2", "main.makeFn", "pardo", ["n1"], ["n2"])
    step("e3", "passert.Equals/Impulse", "impulse", [], ["n3"])
    step("e4", "passert.Equals/passert.diffFn", "pardo", ["n3", "n2"], ["n4", "n5"])
    step("e5", "passert.Equals/passert.failFn", "pardo", ["n4"], [])
    return made


DONE = EndedJob(state="DONE", pipeline=pipeline(), elements={"n1": 1, "n2": 3, "n3": 1, "n5": 3})


@pytest.mark.parametrize(
    ("job", "problems"),
    [
        pytest.param(DONE, [], id="all has run"),
        pytest.param(
            dataclasses.replace(DONE, elements={}),
            ["no element has passed through the SDK harness"],
            id="nothing has run",
        ),
        pytest.param(
            dataclasses.replace(DONE, elements={"n1": 1, "n2": 3}),
            [
                "the assertion passert.Equals/passert.diffFn has had no elements",
                "nothing has reached the step upstream of passert.Equals/passert.failFn",
            ],
            id="the assertion has not run",
        ),
        pytest.param(
            dataclasses.replace(DONE, state="CANCELLED"),
            ["the final state is CANCELLED"],
            id="cancelled",
        ),
        pytest.param(
            EndedJob(
                state="FAILED",
                pipeline=pipeline(),
                error="passert.Equals/passert.failFn: PCollection contains 3, want empty",
            ),
            [],
            id="an assertion fails, as the test expects",
        ),
        pytest.param(
            EndedJob(
                state="FAILED",
                pipeline=pipeline(),
                error="{passert.diffFn, passert.failFn}: DoFn[UID:2, PID:e5, Name: failFn] failed",
            ),
            [],
            id="Go's SDK names the step, by its id",
        ),
        pytest.param(
            EndedJob(state="FAILED", pipeline=pipeline(), error="no usable Spark"),
            ["the job failed, but not in a step of the SDK's: 'no usable Spark'"],
            id="fails for another reason",
        ),
    ],
)
def test_evidence(job: EndedJob, problems: list[str]) -> None:
    assert list(missing(job)) == problems


def test_an_assertion_that_combines_is_judged_by_what_it_combines() -> None:
    """Runners lift the combiner, so that its own steps have no elements: passert.Count."""
    made = pipeline()
    combine = made.components.transforms["e6"]
    combine.unique_name, combine.spec.urn = "passert.Count/CombinePerKey", COMBINE
    combine.inputs["i0"], combine.outputs["i0"] = "n2", "n7"
    combine.subtransforms.append("e7")
    inner = made.components.transforms["e7"]
    inner.unique_name = "passert.Count/CombinePerKey/passert.elmCountCombineFn"
    inner.spec.urn = "beam:transform:pardo:v1"
    inner.inputs["i0"], inner.outputs["i0"] = "n6", "n7"
    counted = dataclasses.replace(DONE, pipeline=made)
    assert list(missing(counted)) == []
    nothing = {**DONE.elements, "n2": 0}
    assert (
        "the assertion passert.Count/CombinePerKey/passert.elmCountCombineFn has had no elements"
        in missing(dataclasses.replace(counted, elements=nothing))
    )


def test_whatever_differs_is_a_surprise() -> None:
    sound = Outcome(verdict=Verdict.SOUND)
    fails = Outcome(verdict=Verdict.FAILING, why="boom")
    outcomes = {"a/T1": sound, "a/T2": fails, "a/T3": fails, "a/T4": sound}
    expected = {"a/T3": Verdict.FAILING, "a/T4": Verdict.UNPROVEN, "a/T5": Verdict.SKIPPED}
    assert list(surprises(outcomes, expected, is_whole=False)) == [
        "a/T2: failing, expected sound: boom",
        "a/T4: sound, expected unproven",
    ]
    assert list(surprises(outcomes, expected, is_whole=True))[2:] == [
        "a/T5: expected to be skipped, but there is no such test"
    ]


def test_the_ledger_is_for_this_beam_and_its_packages() -> None:
    expected = load(apache_beam.__version__)
    known = {package.removeprefix("go/") for package in PACKAGES}
    assert {test.rpartition("/")[0] for test in expected} <= known
    with pytest.raises(ExpectationsError, match="is for Beam"):
        load("2.1.0")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[[failing]]\nreason = "r"\ntests = ["a", "a"]', "names a twice"),
        ('[[failing]]\nreason = ""\ntests = ["a"]', "without a reason"),
    ],
)
def test_what_is_wrong_in_the_ledger_is_said(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "expectations.toml"
    path.write_text(f'beam = "2.77"\n{text}\n')
    with pytest.raises(ExpectationsError, match=problem):
        load("2.77.0", path)
