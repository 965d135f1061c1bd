"""Beam's options of S3 and HDFS, for the clients that access checkpoints."""

from apache_beam.options.pipeline_options import HadoopFileSystemOptions, PipelineOptions, S3Options

_NAMES = {
    "s3_endpoint_url": "endpoint",
    "s3_region_name": "region",
    "s3_access_key_id": "access_key_id",
    "s3_secret_access_key": "secret_access_key",
    "s3_session_token": "session_token",
}
HDFS_NAMES = ("hdfs_host", "hdfs_port", "hdfs_user")


def store_settings(options: PipelineOptions) -> tuple[tuple[str, str], ...]:
    """Return the settings of clients from pipeline options. See ``UrlFolder``."""
    s3, hdfs = options.view_as(S3Options), options.view_as(HadoopFileSystemOptions)
    found = {ours: getattr(s3, beams) for beams, ours in _NAMES.items()}
    found |= {name: getattr(hdfs, name) for name in HDFS_NAMES}
    settings = [(name, str(value)) for name, value in found.items() if value]
    if str(s3.s3_verify).lower() == "false":
        settings.append(("verify", "false"))
    return tuple(settings)
