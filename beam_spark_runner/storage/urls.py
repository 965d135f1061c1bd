"""URLs of a folder of an object store or HDFS, in Spark's and in Beam's form."""

import re
from dataclasses import dataclass

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>[^/]*)(?P<path>/.*|)")
_AZURE_ACCOUNT = re.compile(r"(?P<container>[^@]+)@(?P<account>[^.]+)\.(?:dfs|blob)\.[a-z.]+")

SCHEMES = ("s3", "s3a", "gs", "hdfs", "abfss", "abfs", "azfs")


@dataclass(frozen=True, slots=True)
class StorageUrl:
    """The URLs of one folder, without a slash at the end.

    Attributes:
        spark: The URL for Spark's readers and writers, in the form of Hadoop's connectors.
        beam: The URL for ``apache_beam.io.filesystems.FileSystems``.
    """

    spark: str
    beam: str

    def __truediv__(self, name: str) -> "StorageUrl":
        return StorageUrl(f"{self.spark}/{name}", f"{self.beam}/{name}")


def is_url(location: str) -> bool:
    """Whether a location is a URL, not a path on a mounted file system."""
    return "://" in location


def parse_storage_url(url: str) -> StorageUrl:
    """Return both URLs of a folder; ``url`` is one of them.

    Example:
        s3://bucket/tmp/                       ==> s3a://bucket/tmp, s3://bucket/tmp
        abfss://box@us.dfs.core.windows.net/t  ==> the same, azfs://us/box/t
        hdfs://namenode:8020/tmp               ==> the same, hdfs://tmp

    Beam's client of HDFS finds the host in its own options (``--hdfs_host``), unless
    ``--hdfs_full_urls`` is set.

    Raises:
        ValueError: The scheme is not among ``SCHEMES``, or a part is missing.
    """
    match = _URL.fullmatch(url.rstrip("/"))
    if match is None or match["scheme"] not in SCHEMES:
        raise ValueError(f"{url} is none of {', '.join(f'{each}://' for each in SCHEMES)}")
    scheme, authority, path = match["scheme"], match["authority"], match["path"]
    match scheme:
        case "s3" | "s3a":
            _require(authority, url, "the bucket")
            return StorageUrl(f"s3a://{authority}{path}", f"s3://{authority}{path}")
        case "gs":
            _require(authority, url, "the bucket")
            return StorageUrl(url.rstrip("/"), url.rstrip("/"))
        case "hdfs":
            _require(path, url, "the path")
            return StorageUrl(url.rstrip("/"), f"hdfs:/{path}")
        case "azfs":
            container, _, rest = path.lstrip("/").partition("/")
            _require(authority and container, url, "the storage account or the container")
            host = f"{container}@{authority}.dfs.core.windows.net"
            return StorageUrl(f"abfss://{host}/{rest}".rstrip("/"), url.rstrip("/"))
    account = _AZURE_ACCOUNT.fullmatch(authority)
    if account is None:
        raise ValueError(f"{url} is not of the form {scheme}://CONTAINER@ACCOUNT.dfs.…/PATH")
    return StorageUrl(url.rstrip("/"), f"azfs://{account['account']}/{account['container']}{path}")


def _require(part: str, url: str, what: str) -> None:
    if not part:
        raise ValueError(f"{url}: {what} is missing")
