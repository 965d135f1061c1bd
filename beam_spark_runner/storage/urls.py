"""URLs of folders of object stores and HDFS, in the form of Hadoop's connectors."""

import re

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>[^/]*)(?P<path>/.*|)")
_AZURE_FOLDER = re.compile(r"[^@]+@[^.]+\.(?:dfs|blob)\.[a-z.]+")

SCHEMES = ("s3", "s3a", "gs", "hdfs", "abfss", "abfs", "azfs")


def is_url(location: str) -> bool:
    """Whether a location is a URL, not a path on a mounted file system."""
    return "://" in location


def hadoop_url(url: str) -> str:
    """Return the URL of a folder in the form of Hadoop's connectors, without a slash at the end.

    Args:
        url: The URL, in that form or in the form of Beam's file systems.

    Example:
        s3://bucket/tmp/    ==> s3a://bucket/tmp
        azfs://us/box/t     ==> abfss://box@us.dfs.core.windows.net/t
        gs://bucket/tmp     ==> the same

    Raises:
        ValueError: The scheme is not among ``SCHEMES``, or a part is missing.
    """
    url = url.rstrip("/")
    match = _URL.fullmatch(url)
    if match is None or match["scheme"] not in SCHEMES:
        raise ValueError(f"{url} is none of {', '.join(f'{scheme}://' for scheme in SCHEMES)}")
    scheme, authority, path = match["scheme"], match["authority"], match["path"]
    match scheme:
        case "s3" | "s3a":
            _require(authority, url, "the bucket")
            return f"s3a://{authority}{path}"
        case "gs":
            _require(authority, url, "the bucket")
        case "hdfs":
            _require(path, url, "the path")
        case "azfs":
            container, _, rest = path.lstrip("/").partition("/")
            _require(authority and container, url, "the storage account or the container")
            return f"abfss://{container}@{authority}.dfs.core.windows.net/{rest}".rstrip("/")
        case _ if _AZURE_FOLDER.fullmatch(authority) is None:
            raise ValueError(f"{url} is not of the form {scheme}://CONTAINER@ACCOUNT.dfs.…/PATH")
    return url


def _require(part: str, url: str, what: str) -> None:
    if not part:
        raise ValueError(f"{url}: {what} is missing")
