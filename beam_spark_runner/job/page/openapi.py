"""The description of the page's JSON, in OpenAPI 3.1."""

from typing import Any

_JOB = {"name": "job_id", "in": "path", "required": True, "schema": {"type": "string"}}
_CHOICES = [
    {
        "name": "level",
        "in": "query",
        "description": "The lowest level of messages.",
        "schema": {"type": "string", "enum": ["error", "warning", "info", "debug"]},
    },
    {
        "name": "worker",
        "in": "query",
        "description": "The worker that has written the messages.",
        "schema": {"type": "string"},
    },
    {
        "name": "find",
        "in": "query",
        "description": "A text that messages must have.",
        "schema": {"type": "string"},
    },
]
_UNFOLDED = {
    "name": "open",
    "in": "query",
    "description": "A composite whose parts are shown; may be repeated. *: all.",
    "schema": {"type": "array", "items": {"type": "string"}},
    "explode": True,
}
_SENTENCE = {
    "type": "object",
    "description": "What holds the job back.",
    "properties": {
        "text": {"type": "string"},
        "tone": {"type": "string", "enum": ["good", "busy", "held", "bad"]},
        "remedy": {"type": "string"},
        "step": {"type": ["string", "null"]},
    },
}
_SUMMARY = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "name": {"type": "string"},
        "state": {"type": "string"},
        "is_streaming": {"type": ["boolean", "null"]},
        "began_s": {"type": ["number", "null"], "description": "Unix time in seconds."},
        "ended_s": {"type": ["number", "null"], "description": "Unix time in seconds."},
        "sentence": _SENTENCE,
        "error": {"type": ["string", "null"]},
        "read": {"type": "integer", "description": "Elements that sources have emitted."},
        "read_per_second": {"type": "array", "items": {"type": "number"}},
    },
}
_ERROR = {"type": "object", "properties": {"error": {"type": "string"}}}


def _answers(text: str, schema: dict[str, Any], kind: str = "application/json") -> dict[str, Any]:
    failed = {"application/json": {"schema": _ERROR}}
    return {
        "200": {"description": text, "content": {kind: {"schema": schema}}},
        "401": {"description": "The token is missing or wrong.", "content": failed},
        "404": {"description": "There is no such job.", "content": failed},
    }


def _action(
    text: str, properties: dict[str, Any], more: dict[str, Any] | None = None
) -> dict[str, Any]:
    answer = {"said": {"type": "string"}, **(more or {})}
    answers = _answers(text, {"type": "object", "properties": answer})
    failed = {"application/json": {"schema": _ERROR}}
    answers["403"] = {"description": "The page is read-only.", "content": failed}
    answers["409"] = {"description": "The job cannot do this now.", "content": failed}
    body = {"application/json": {"schema": {"type": "object", "properties": properties}}}
    return {
        "post": {
            "summary": text,
            "parameters": [_JOB],
            "requestBody": {"required": True, "content": body},
            "responses": answers,
        }
    }


def openapi(version: str) -> dict[str, Any]:
    """Return the description.

    Args:
        version: The version of this package.
    """
    any_object = {"type": "object"}
    summaries = {
        "type": "object",
        "properties": {"jobs": {"type": "array", "items": _SUMMARY}},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Jobs of beam-spark-runner", "version": version},
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],
        "paths": {
            "/api/v1/jobs": {
                "get": {
                    "summary": "All jobs, the newest first",
                    "responses": _answers("The jobs.", summaries),
                }
            },
            "/api/v1/jobs/{job_id}": {
                "get": {
                    "summary": "Everything about a job but its messages",
                    "parameters": [_JOB],
                    "responses": _answers(
                        "The job: its summary, steps, edges, epochs or segments, options, plan.",
                        {"allOf": [_SUMMARY, any_object]},
                    ),
                }
            },
            "/api/v1/jobs/{job_id}/messages": {
                "get": {
                    "summary": "The messages of a job, the oldest first",
                    "parameters": [_JOB, *_CHOICES],
                    "responses": _answers("The messages that are kept.", any_object),
                }
            },
            "/api/v1/jobs/{job_id}/graph.svg": {
                "get": {
                    "summary": "The steps of a job as a picture",
                    "parameters": [_JOB, _UNFOLDED],
                    "responses": {
                        **_answers("The picture.", {"type": "string"}, "image/svg+xml"),
                        "422": {
                            "description": "There are no steps, or too many for a picture.",
                            "content": {"application/json": {"schema": _ERROR}},
                        },
                    },
                }
            },
            "/api/v1/jobs/{job_id}/cancel": _action("Cancel the job.", {}),
            "/api/v1/jobs/{job_id}/drain": _action("Drain a streaming job.", {}),
            "/api/v1/jobs/{job_id}/stacks": _action(
                "Return the stacks of the running tasks.", {}, {"stacks": {"type": "string"}}
            ),
            "/api/v1/jobs/{job_id}/memory": _action(
                "Return memory profiles of the workers.", {}, {"memory": {"type": "string"}}
            ),
            "/api/v1/jobs/{job_id}/savepoint": _action(
                "Make a savepoint of a streaming job.", {"path": {"type": "string"}}
            ),
        },
    }
