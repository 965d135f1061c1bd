"""Options of S3 and HDFS, for the clients that access checkpoints; most of them are Beam's."""

import argparse

_NAMES = {
    "s3_endpoint_url": "endpoint",
    "s3_region_name": "region",
    "s3_access_key_id": "access_key_id",
    "s3_secret_access_key": "secret_access_key",
    "s3_session_token": "session_token",
}
_HDFS_NAMES = ("hdfs_host", "hdfs_port", "hdfs_user")
_HDFS_FLAGS = ("hdfs_https", "hdfs_kerberos")


def store_settings(options: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    """Return the settings of clients, from the values of ``read_options``. See ``UrlFolder``."""
    values = {ours: getattr(options, beams) for beams, ours in _NAMES.items()}
    settings = [(name, str(value)) for name, value in values.items() if value]
    if str(options.s3_verify).lower() == "false":
        settings.append(("verify", "false"))
    return (*settings, *hdfs_settings(options))


def hdfs_settings(options: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    """Return those of clients of HDFS."""
    values = {name: getattr(options, name) for name in _HDFS_NAMES}
    settings = [(name, str(value)) for name, value in values.items() if value]
    # A class of the program's may declare an option of the runner's.
    return (*settings, *((name, "true") for name in _HDFS_FLAGS if getattr(options, name, False)))
