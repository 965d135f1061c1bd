"""Messages of the backchannel for tests."""

from apache_beam.portability.api import beam_fn_api_pb2


def entry(text: str) -> beam_fn_api_pb2.LogEntry:
    return beam_fn_api_pb2.LogEntry(message=text, severity=beam_fn_api_pb2.LogEntry.Severity.INFO)
