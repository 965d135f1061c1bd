"""The files that an environment depends on, as its proto names them."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import UnsupportedFeatureError

_NAME_DIGITS = 16
_NAME_OF_ROLE = 60
_ROLES = "beam:artifact:role:"
LONGEST_NAME = 255
"""The most bytes in the name of a file."""
_GOOD_NAME = f"a file name of at most {LONGEST_NAME} bytes, of printable characters without a slash"


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One file."""

    name: str  # unique among the files of its environment, without folders
    path: str  # on this machine, or a URL of a staging area; empty: identified by content only
    sha256: str  # hexadecimal; empty: not computed yet
    role_urn: str = urns.ARTIFACT_STAGING_TO  # its purpose
    role_payload: bytes = b""  # empty for ARTIFACT_STAGING_TO, whose payload is ``name``

    @property
    def is_requirements(self) -> bool:
        """Whether the file is a list of packages for ``pip install -r``."""
        return self.role_urn == urns.ARTIFACT_PIP_REQUIREMENTS


def artifacts_of(environment: beam_runner_api_pb2.Environment) -> tuple[Artifact, ...]:
    """Return the files of an environment, sorted by name.

    Raises:
        UnsupportedFeatureError: An artifact is no file, or has a name that is no file name.
    """
    return tuple(
        sorted(map(_artifact, environment.dependencies), key=lambda artifact: artifact.name)
    )


def _artifact(proto: beam_runner_api_pb2.ArtifactInformation) -> Artifact:
    if proto.type_urn != urns.ARTIFACT_FILE:
        raise UnsupportedFeatureError(f"an artifact of type {proto.type_urn}", "the environment")
    file = beam_runner_api_pb2.ArtifactFilePayload.FromString(proto.type_payload)
    known_by = (file.sha256 or hashlib.sha256(file.path.encode()).hexdigest())[:_NAME_DIGITS]
    if proto.role_urn == urns.ARTIFACT_STAGING_TO:
        role = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(proto.role_payload)
        name = role.staged_name
    elif proto.role_urn == urns.ARTIFACT_PIP_REQUIREMENTS:
        name = f"requirements-{known_by}.txt"
    else:  # a role of an SDK, which the runner passes on
        words = re.sub(r"\W+", "-", proto.role_urn.removeprefix(_ROLES))[:_NAME_OF_ROLE]
        name = f"{words or 'file'}-{known_by}"
    if not _is_file_name(name):
        raise UnsupportedFeatureError(
            f"an artifact that is called {name[:_NAME_OF_ROLE]!r}", "the environment", _GOOD_NAME
        )
    return Artifact(
        name=name,
        path=file.path,
        sha256=file.sha256,
        role_urn=proto.role_urn,
        role_payload=b"" if proto.role_urn == urns.ARTIFACT_STAGING_TO else proto.role_payload,
    )


def _is_file_name(name: str) -> bool:
    """Whether a name is that of a file in one folder, on any machine and in any archive."""
    if not name or name in (".", "..") or "/" in name or not name.isprintable():
        return False
    try:
        return len(name.encode()) <= LONGEST_NAME
    except UnicodeEncodeError:
        return False


def described(proto: beam_runner_api_pb2.ArtifactInformation) -> str:
    """Describe an artifact of a pipeline, for people."""
    if proto.role_urn == urns.ARTIFACT_STAGING_TO:
        role = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(proto.role_payload)
        return repr(role.staged_name)
    return f"an artifact as {proto.role_urn or 'nothing'}"


def to_proto(artifact: Artifact) -> beam_runner_api_pb2.ArtifactInformation:
    """Convert a file to the proto that SDK harnesses read."""
    file = beam_runner_api_pb2.ArtifactFilePayload(path=artifact.path, sha256=artifact.sha256)
    proto = beam_runner_api_pb2.ArtifactInformation(
        type_urn=urns.ARTIFACT_FILE,
        type_payload=file.SerializeToString(),
        role_urn=artifact.role_urn,
        role_payload=artifact.role_payload,
    )
    if artifact.role_urn == urns.ARTIFACT_STAGING_TO:
        role = beam_runner_api_pb2.ArtifactStagingToRolePayload(staged_name=artifact.name)
        proto.role_payload = role.SerializeToString()
    return proto


def digest_of(artifacts: Iterable[Artifact]) -> str:
    """Return a digest of a set of files, by names, contents and roles, hexadecimal."""
    digest = hashlib.sha256()
    for artifact in sorted(artifacts, key=lambda artifact: artifact.name):
        digest.update(f"{artifact.name}\0{artifact.sha256}\0{artifact.role_urn}\0".encode())
        digest.update(b"%d\0%b" % (len(artifact.role_payload), artifact.role_payload))
    return digest.hexdigest()
