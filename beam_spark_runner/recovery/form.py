"""The form of a pipeline's manifests: how they are named, encoded and numbered."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

ManifestT = TypeVar("ManifestT")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestForm(Generic[ManifestT]):
    """The form of manifests, each of which replaces the one with the previous number.

    Attributes:
        name_of: Returns the name of the file with a number.
        number_in: Returns the number in the name of a file; None: it is no such manifest.
        number_of: Returns the number of a manifest: that of its epoch, or of its commit.
        fence_of: Returns the fence of the driver that has committed a manifest.
        encode: Returns the content of the file.
        decode: Returns the manifest in the content of a file, whose name is for errors. Raises a
            CorruptManifestError if it is damaged, an IncompatibleCheckpointError if another version
            of this package has written it in another format.
    """

    name_of: Callable[[int], str]
    number_in: Callable[[str], int | None]
    number_of: Callable[[ManifestT], int]
    fence_of: Callable[[ManifestT], int]
    encode: Callable[[ManifestT], bytes]
    decode: Callable[[bytes, str], ManifestT]
