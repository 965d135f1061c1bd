"""The files that an environment depends on, as its proto names them."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import UnsupportedFeatureError

_NAME_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One file."""

    name: str  # among the files of its environment; no folder in it
    path: str  # on this machine; empty where it is known by its content only
    sha256: str  # hex; empty: nobody has looked at the content yet
    is_requirements: bool = False  # a list of packages, for ``pip install -r``


def artifacts_of(environment: beam_runner_api_pb2.Environment) -> tuple[Artifact, ...]:
    """Return the files of an environment, sorted by name.

    Raises:
        UnsupportedFeatureError: it needs something that is no file of this machine.
    """
    return tuple(sorted(map(_artifact, environment.dependencies), key=lambda each: each.name))


def _artifact(found: beam_runner_api_pb2.ArtifactInformation) -> Artifact:
    if found.type_urn != urns.ARTIFACT_FILE:
        raise UnsupportedFeatureError(f"an artifact of type {found.type_urn}", "the environment")
    file = beam_runner_api_pb2.ArtifactFilePayload.FromString(found.type_payload)
    if found.role_urn == urns.ARTIFACT_PIP_REQUIREMENTS:
        known_by = file.sha256 or hashlib.sha256(file.path.encode()).hexdigest()
        name = f"requirements-{known_by[:_NAME_DIGITS]}.txt"
    elif found.role_urn == urns.ARTIFACT_STAGING_TO:
        role = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(found.role_payload)
        name = role.staged_name
    else:
        raise UnsupportedFeatureError(f"an artifact as {found.role_urn}", "the environment")
    if not name or "/" in name or name in (".", ".."):
        raise UnsupportedFeatureError(f"an artifact that is called {name!r}", "the environment")
    return Artifact(
        name=name,
        path=file.path,
        sha256=file.sha256,
        is_requirements=found.role_urn == urns.ARTIFACT_PIP_REQUIREMENTS,
    )


def described(found: beam_runner_api_pb2.ArtifactInformation) -> str:
    """Return how a pipeline calls a file, for people."""
    if found.role_urn == urns.ARTIFACT_STAGING_TO:
        role = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(found.role_payload)
        return repr(role.staged_name)
    return f"an artifact as {found.role_urn or 'nothing'}"


def to_proto(artifact: Artifact) -> beam_runner_api_pb2.ArtifactInformation:
    """Write a file as SDK harnesses read it."""
    file = beam_runner_api_pb2.ArtifactFilePayload(path=artifact.path, sha256=artifact.sha256)
    found = beam_runner_api_pb2.ArtifactInformation(
        type_urn=urns.ARTIFACT_FILE, type_payload=file.SerializeToString()
    )
    if artifact.is_requirements:
        found.role_urn = urns.ARTIFACT_PIP_REQUIREMENTS
    else:
        role = beam_runner_api_pb2.ArtifactStagingToRolePayload(staged_name=artifact.name)
        found.role_urn = urns.ARTIFACT_STAGING_TO
        found.role_payload = role.SerializeToString()
    return found


def digest_of(artifacts: Iterable[Artifact]) -> str:
    """Return a digest of a set of files, by names and contents, hexadecimal."""
    digest = hashlib.sha256()
    for each in sorted(artifacts, key=lambda each: each.name):
        digest.update(f"{each.name}\0{each.sha256}\0{each.is_requirements}\0".encode())
    return digest.hexdigest()
