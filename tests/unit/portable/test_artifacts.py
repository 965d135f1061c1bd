"""The files of an environment, from its proto and back."""

from pathlib import Path

import pytest
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.stager import Stager

from beam_spark_runner.core.errors import StagingError, UnsupportedFeatureError
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.job.prepare.packages import identify_packages
from beam_spark_runner.portable.artifacts import Artifact, artifacts_of, digest_of, to_proto
from tests.unit.portable.steps import environments_in, steps_in


def environment(*dependencies: object) -> beam_runner_api_pb2.Environment:
    return beam_runner_api_pb2.Environment(dependencies=dependencies)


def test_what_beam_stages_is_read() -> None:
    found = artifacts_of(
        environment(
            Stager._create_file_stage_to_artifact("/a/b.whl", "c.whl"),
            Stager._create_file_pip_requirements_artifact("/a/r.txt"),
        )
    )
    file, requirements = found
    assert file == Artifact(name="c.whl", path="/a/b.whl", sha256="")
    assert requirements.is_requirements
    assert requirements.path == "/a/r.txt"
    assert requirements.name.startswith("requirements-")


@pytest.mark.parametrize(
    "artifact",
    [
        Artifact(name="a.whl", path="/x", sha256="ab" * 32),
        Artifact(
            name=f"requirements-{'ab' * 8}.txt",
            path="/x",
            sha256="ab" * 32,
            role_urn=common_urns.artifact_roles.PIP_REQUIREMENTS_FILE.urn,
        ),
        Artifact(
            name=f"go_worker_binary-v1-{'ab' * 8}",
            path="/x",
            sha256="ab" * 32,
            role_urn="beam:artifact:role:go_worker_binary:v1",
            role_payload=b"for Go",
        ),
        Artifact(name=f"file-{'ab' * 8}", path="/x", sha256="ab" * 32, role_urn=""),
        Artifact(
            name=f"-etc-passwd-{'ab' * 8}", path="/", sha256="ab" * 32, role_urn="../etc/passwd"
        ),
    ],
    ids=lambda artifact: artifact.role_urn,
)
def test_there_and_back(artifact: Artifact) -> None:
    assert artifacts_of(environment(to_proto(artifact))) == (artifact,)


def test_the_same_file_for_something_else_is_another_set() -> None:
    files = [
        Artifact(name="a", path="/a", sha256="ab" * 32, role_urn=role, role_payload=payload)
        for role, payload in (("one", b""), ("one", b"x"), ("two", b""))
    ]
    assert len({digest_of([each]) for each in files}) == 3


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../a", "/a", "a/b", "a/../../b"),
        *("a\0b", "a\nb", "\x1b[2J", "a\x7f", "a\u202eb", "a\u2028b"),
        *("a" * 256, "н" * 128),
    ],
)
def test_a_name_is_that_of_a_file_in_one_folder(name: str) -> None:
    """It leaves no folder, and every file system, archive, list of names and log can have it."""
    with pytest.raises(UnsupportedFeatureError, match=r"artifact that is called '.*file name of"):
        artifacts_of(environment(Stager._create_file_stage_to_artifact("/a", name)))


def test_what_is_no_file_is_refused() -> None:
    url = beam_runner_api_pb2.ArtifactInformation(type_urn=common_urns.artifact_types.URL.urn)
    with pytest.raises(UnsupportedFeatureError, match="beam:artifact:type:url:v1"):
        artifacts_of(environment(url))


def test_files_are_known_by_what_is_in_them(tmp_path: Path) -> None:
    """Where they lie, and in which order they are named, does not matter."""

    def staged(folder: str, *texts: str, reverse: bool = False) -> Graph:
        (tmp_path / folder).mkdir()
        found = []
        for number, text in enumerate(texts):
            path = tmp_path / folder / str(number)
            path.write_text(text)
            found.append(Stager._create_file_stage_to_artifact(str(path), f"f{number}"))
        return steps_in(e=environment(*(reversed(found) if reverse else found)))

    one, same, other = (
        identify_packages(each)
        for each in (
            staged("one", "a", "b"),
            staged("same", "a", "b", reverse=True),
            staged("other", "a", "c"),
        )
    )
    assert one[0] == same[0]
    assert one[0] != other[0]
    digests = [next(iter(packages)) for _, packages in (one, same, other)]
    assert digests[0] == digests[1] != digests[2]
    assert digest_of(artifacts_of(environments_in(one[0])["e"])) == digests[0]


def test_a_file_that_has_gone() -> None:
    gone = environment(Stager._create_file_stage_to_artifact("/no/such/file", "f"))
    with pytest.raises(StagingError, match="/no/such/file: No such file"):
        identify_packages(steps_in(e=gone))


def test_files_of_one_environment_need_names_of_their_own(tmp_path: Path) -> None:
    def staged_as(*names: str) -> Graph:
        found = []
        for number, name in enumerate(names):
            file = tmp_path / str(number)
            file.write_text(str(number % 2))
            found.append(Stager._create_file_stage_to_artifact(str(file), name))
        return steps_in(e=environment(*found))

    identify_packages(staged_as("a", "b", "a"))  # the first and the last are the same
    with pytest.raises(StagingError, match="staged as 'a', with different contents"):
        identify_packages(staged_as("a", "a"))
    identify_packages(staged_as("н" * 127, "with spaces (1).txt", "-r"))
