"""Beam's options of S3 and HDFS, for the clients that access checkpoints."""

import argparse

_NAMES = {
    "s3_endpoint_url": "endpoint",
    "s3_region_name": "region",
    "s3_access_key_id": "access_key_id",
    "s3_secret_access_key": "secret_access_key",
    "s3_session_token": "session_token",
}
HDFS_NAMES = ("hdfs_host", "hdfs_port", "hdfs_user")


def store_settings(given: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    """Return the settings of clients, from the values of ``read_options``. See ``UrlFolder``."""
    found = {ours: getattr(given, beams) for beams, ours in _NAMES.items()}
    found |= {name: getattr(given, name) for name in HDFS_NAMES}
    settings = [(name, str(value)) for name, value in found.items() if value]
    if str(given.s3_verify).lower() == "false":
        settings.append(("verify", "false"))
    return tuple(settings)
