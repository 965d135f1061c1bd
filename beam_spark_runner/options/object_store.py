"""The options of Beam's S3 client, for ours: checkpoints are not written by Beam's file systems."""

from apache_beam.options.pipeline_options import PipelineOptions, S3Options

_NAMES = {
    "s3_endpoint_url": "endpoint",
    "s3_region_name": "region",
    "s3_access_key_id": "access_key_id",
    "s3_secret_access_key": "secret_access_key",
    "s3_session_token": "session_token",
}


def store_settings(options: PipelineOptions) -> tuple[tuple[str, str], ...]:
    """Return the settings of obstore's client that options give. See ``ObjectFolder``."""
    given = options.view_as(S3Options)
    found = {ours: getattr(given, beams) for beams, ours in _NAMES.items()}
    settings = [(name, str(value)) for name, value in found.items() if value]
    if str(given.s3_verify).lower() == "false":
        settings.append(("verify", "false"))
    return tuple(settings)
