"""Requests that schemathesis makes from the description: the right ones, the wrong ones, and the odd ones."""

from __future__ import annotations

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from paraserve.api.app import create_app
from tests.toy import deployment, engine, reply

REPLIES = [
    reply("Hello."),
    reply('<think>Hm.</think><tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'),
    reply("", end=True),
]
app = create_app(deployment(engine(*REPLIES)))
schema = schemathesis.openapi.from_asgi("/openapi.json", app)


@schema.parametrize()
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_gets_an_answer_that_is_not_described(case: schemathesis.Case) -> None:
    case.call_and_validate(
        checks=[
            not_a_server_error,
            status_code_conformance,
            content_type_conformance,
            response_schema_conformance,
            unsupported_method,
        ]
    )
