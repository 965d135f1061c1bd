"""What a client stages lies in one folder, by its content, and is what the pipeline says."""

import contextlib
import hashlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from apache_beam.portability.api import beam_artifact_api_pb2, beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import StagingError
from beam_spark_runner.job.server import staging as staging_module
from beam_spark_runner.job.server.patient_stream import PatientStream
from beam_spark_runner.job.server.refusals import ReplacedStreamError, TooLargeError
from beam_spark_runner.job.server.staging import StagedArtifacts, replace_artifacts
from beam_spark_runner.job.server.staging_area import StagingArea

SOON_S = 60.0
LIMIT_BYTES = 1_000
HASH = hashlib.sha256(b"content").hexdigest()


def artifact(name: str, path: str = "there", sha256: str = "") -> Any:
    role = beam_runner_api_pb2.ArtifactStagingToRolePayload(staged_name=name)
    file = beam_runner_api_pb2.ArtifactFilePayload(path=path, sha256=sha256)
    return beam_runner_api_pb2.ArtifactInformation(
        type_urn=urns.ARTIFACT_FILE,
        type_payload=file.SerializeToString(),
        role_urn=urns.ARTIFACT_STAGING_TO,
        role_payload=role.SerializeToString(),
    )


def pipeline_with(*artifacts: Any) -> Any:
    pipeline = beam_runner_api_pb2.Pipeline()
    pipeline.components.environments["python"].dependencies.extend(artifacts)
    return pipeline


@contextlib.contextmanager
def patient(answers: Iterator[Any]) -> Iterator[PatientStream]:
    stream = PatientStream(answers, lambda: None, SOON_S)
    with contextlib.closing(stream):
        yield stream


class Client:
    """Answers what it is asked, with files of its own."""

    def __init__(self, files: Mapping[str, bytes], resolved: Mapping[str, Any] = {}) -> None:
        self._files, self._resolved = files, resolved
        self.asked: list[str] = []

    def stage(self, staged: StagedArtifacts) -> None:
        answers: list[Any] = []
        with patient(self._pop(answers)) as stream:
            for request in staged.stage(stream):
                answers += self._answer(request)

    @staticmethod
    def _pop(answers: list[Any]) -> Iterator[Any]:
        while answers:
            yield answers.pop(0)

    def _answer(self, request: Any) -> Iterator[Any]:
        wrapper = beam_artifact_api_pb2.ArtifactResponseWrapper
        self.asked.append(request.WhichOneof("request"))
        if request.HasField("resolve_artifact"):
            found = [
                self._resolved.get(each.type_urn, each)
                for each in request.resolve_artifact.artifacts
            ]
            yield wrapper(
                resolve_artifact_response=beam_artifact_api_pb2.ResolveArtifactsResponse(
                    replacements=found
                )
            )
            return
        payload = request.get_artifact.artifact.type_payload
        content = self._files[beam_runner_api_pb2.ArtifactFilePayload.FromString(payload).path]
        for byte in content:
            yield wrapper(
                get_artifact_response=beam_artifact_api_pb2.GetArtifactResponse(data=bytes([byte]))
            )
        yield wrapper(is_last=True)


def files_in(pipeline: Any) -> dict[str, Path]:
    found = {}
    for each in pipeline.components.environments["python"].dependencies:
        role = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(each.role_payload)
        file = beam_runner_api_pb2.ArtifactFilePayload.FromString(each.type_payload)
        assert each.type_urn == urns.ARTIFACT_FILE
        assert file.sha256 == Path(file.path).name
        found[role.staged_name] = Path(file.path)
    return found


def test_files_are_known_by_their_content(tmp_path: Path) -> None:
    pipeline = pipeline_with(artifact("a.txt"), artifact("b.txt", sha256=HASH), artifact("c", "c"))
    staged = StagedArtifacts(pipeline, StagingArea(str(tmp_path / "job")), LIMIT_BYTES)
    Client({"there": b"content", "c": b""}).stage(staged)
    assert staged.is_complete
    replace_artifacts(pipeline, staged.located_artifacts(), StagingArea(str(tmp_path / "job")))
    found = files_in(pipeline)
    assert {name: path.read_bytes() for name, path in found.items()} == {
        "a.txt": b"content",
        "b.txt": b"content",
        "c": b"",
    }
    assert found["a.txt"] == found["b.txt"]
    assert sorted((tmp_path / "job").iterdir()) == sorted(set(found.values()))


def test_files_of_an_alternative_are_staged(tmp_path: Path) -> None:
    """Their paths are those of the client's machine, whatever this one has there."""
    payload = beam_runner_api_pb2.AnyOfEnvironmentPayload()
    payload.environments.add(urn=urns.ENVIRONMENT_DOCKER).dependencies.extend([artifact("unused")])
    chosen = payload.environments.add(urn=urns.ENVIRONMENT_PROCESS)
    chosen.dependencies.extend([artifact("a.txt", "/etc/hostname")])
    pipeline = beam_runner_api_pb2.Pipeline()
    environment = pipeline.components.environments["python"]
    environment.urn, environment.payload = urns.ENVIRONMENT_ANYOF, payload.SerializeToString()
    staged = StagedArtifacts(pipeline, StagingArea(str(tmp_path / "job")), LIMIT_BYTES)
    assert not staged.is_complete
    Client({"/etc/hostname": b"content"}).stage(staged)
    replace_artifacts(pipeline, staged.located_artifacts(), StagingArea(str(tmp_path / "job")))
    assert files_in(pipeline)["a.txt"].read_bytes() == b"content"


def test_a_client_that_has_nothing_to_stage_is_asked_all_the_same(tmp_path: Path) -> None:
    pipeline = pipeline_with()
    staged = StagedArtifacts(pipeline, StagingArea(str(tmp_path / "job")), LIMIT_BYTES)
    assert staged.is_complete  # whether it stages or not
    client = Client({})
    client.stage(staged)
    assert client.asked == ["resolve_artifact"]
    replace_artifacts(pipeline, staged.located_artifacts(), StagingArea(str(tmp_path / "job")))
    assert files_in(pipeline) == {}


@pytest.mark.parametrize("name", ["../../escaped", "/tmp/escaped", "..", "", "a/b"])
def test_names_do_not_say_where_files_lie(name: str, tmp_path: Path) -> None:
    pipeline = pipeline_with(artifact(name))
    staged = StagedArtifacts(pipeline, StagingArea(str(tmp_path / "job")), LIMIT_BYTES)
    Client({"there": b"content"}).stage(staged)
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()] == [
        Path("job", HASH)
    ]


def test_what_a_pipeline_brings_along_is_not_asked_for(tmp_path: Path) -> None:
    embedded = artifact("a.txt")
    embedded.type_urn = urns.ARTIFACT_EMBEDDED
    payload = beam_runner_api_pb2.EmbeddedFilePayload(data=b"content")
    embedded.type_payload = payload.SerializeToString()
    deferred = beam_runner_api_pb2.ArtifactInformation(type_urn="beam:artifact:type:deferred:v1")
    pipeline = pipeline_with(deferred)
    staged = StagedArtifacts(pipeline, StagingArea(str(tmp_path)), LIMIT_BYTES)
    client = Client({}, resolved={deferred.type_urn: embedded})
    client.stage(staged)
    replace_artifacts(pipeline, staged.located_artifacts(), StagingArea(str(tmp_path)))
    assert client.asked == ["resolve_artifact"]
    assert files_in(pipeline) == {"a.txt": tmp_path / HASH}


def test_a_pipeline_without_files_needs_no_staging(tmp_path: Path) -> None:
    staged = StagedArtifacts(pipeline_with(), StagingArea(str(tmp_path / "job")), LIMIT_BYTES)
    assert staged.is_complete
    Client({}).stage(staged)
    assert not (tmp_path / "job").exists()


def test_a_file_that_is_not_what_the_pipeline_says(tmp_path: Path) -> None:
    staged = StagedArtifacts(
        pipeline_with(artifact("a.txt", sha256=HASH)), StagingArea(str(tmp_path)), LIMIT_BYTES
    )
    with pytest.raises(StagingError, match=r"'a\.txt' has SHA-256 .* the pipeline says"):
        Client({"there": b"other"}).stage(staged)
    assert not staged.is_complete
    assert list(tmp_path.iterdir()) == []


def test_more_artifacts_than_the_limit_are_refused(tmp_path: Path) -> None:
    pipeline = pipeline_with(artifact("a", "a"), artifact("b", "b"))
    staged = StagedArtifacts(pipeline, StagingArea(str(tmp_path)), LIMIT_BYTES)
    with pytest.raises(TooLargeError, match="max_artifact_bytes"):
        Client({"a": bytes(600), "b": bytes(401)}).stage(staged)
    Client({"a": bytes(600), "b": bytes(400)}).stage(staged)  # a second try has all the room
    assert staged.is_complete


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_client_that_goes_away(after: int, tmp_path: Path) -> None:
    staged = StagedArtifacts(
        pipeline_with(artifact("a.txt")), StagingArea(str(tmp_path)), LIMIT_BYTES
    )
    wrapper = beam_artifact_api_pb2.ArtifactResponseWrapper
    chunk = beam_artifact_api_pb2.GetArtifactResponse(data=b"con")
    resolved = beam_artifact_api_pb2.ResolveArtifactsResponse(replacements=[artifact("a.txt")])
    answers = [wrapper(resolve_artifact_response=resolved), wrapper(get_artifact_response=chunk)]
    with (
        patient(iter(answers[:after])) as stream,
        pytest.raises(StagingError, match="the client ended"),
    ):
        list(staged.stage(stream))
    assert not staged.is_complete
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_answers_to_what_was_not_asked(turn: int, tmp_path: Path) -> None:
    staged = StagedArtifacts(
        pipeline_with(artifact("a.txt")), StagingArea(str(tmp_path)), LIMIT_BYTES
    )
    wrapper = beam_artifact_api_pb2.ArtifactResponseWrapper
    chunk = wrapper(get_artifact_response=beam_artifact_api_pb2.GetArtifactResponse(data=b"con"))
    resolved = wrapper(
        resolve_artifact_response=beam_artifact_api_pb2.ResolveArtifactsResponse(
            replacements=[artifact("a.txt")]
        )
    )
    answers = [[chunk], [resolved, resolved], [resolved, chunk, resolved]][turn]
    with patient(iter(answers)) as stream, pytest.raises(StagingError, match="the client sent"):
        list(staged.stage(stream))
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "file" / "folder"
    (tmp_path / "file").write_text("in the way")
    staged = StagedArtifacts(
        pipeline_with(artifact("a.txt")), StagingArea(str(folder)), LIMIT_BYTES
    )
    with pytest.raises(StagingError, match="cannot write"):
        Client({"there": b"content"}).stage(staged)


def test_names_and_roles_of_files_have_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stay in memory, and a client may resolve one file to any number of them."""
    monkeypatch.setattr(staging_module, "_MAX_DESCRIBED_BYTES", 1_000)
    staged = StagedArtifacts(pipeline_with(artifact("a")), StagingArea(str(tmp_path)), LIMIT_BYTES)
    long = artifact("n" * 1_000)
    with pytest.raises(TooLargeError, match="names and roles"):
        Client({"there": b"content"}, resolved={urns.ARTIFACT_FILE: long}).stage(staged)
    Client({"there": b"content"}).stage(staged)


def test_a_client_that_stages_again_does_not_wait_for_its_first_stream(tmp_path: Path) -> None:
    staged = StagedArtifacts(
        pipeline_with(artifact("a.txt")), StagingArea(str(tmp_path)), LIMIT_BYTES
    )
    ends = threading.Event()

    def say_nothing() -> Iterator[Any]:
        ends.wait(SOON_S)
        yield from ()

    errors: list[BaseException] = []
    asked = threading.Event()

    def stage_in_silence() -> None:
        with patient(say_nothing()) as stream:
            try:
                for _ in staged.stage(stream):
                    asked.set()
            except ReplacedStreamError as error:
                errors.append(error)

    silent = threading.Thread(target=stage_in_silence)
    silent.start()
    assert asked.wait(SOON_S)
    Client({"there": b"content"}).stage(staged)
    silent.join(SOON_S)
    ends.set()
    assert staged.is_complete
    assert [str(each) for each in errors] == ["the client stages the same files by another stream"]


def test_messages_without_data_are_no_progress(tmp_path: Path) -> None:
    staged = StagedArtifacts(
        pipeline_with(artifact("a.txt")), StagingArea(str(tmp_path)), LIMIT_BYTES
    )
    wrapper = beam_artifact_api_pb2.ArtifactResponseWrapper
    resolved = beam_artifact_api_pb2.ResolveArtifactsResponse(replacements=[artifact("a.txt")])
    empty = wrapper(get_artifact_response=beam_artifact_api_pb2.GetArtifactResponse())

    def answers() -> Iterator[Any]:
        yield wrapper(resolve_artifact_response=resolved)
        while True:
            yield empty

    with patient(answers()) as stream, pytest.raises(StagingError, match="without data"):
        list(staged.stage(stream))
