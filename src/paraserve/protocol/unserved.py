"""Fields of other APIs that say what a reply must be, and that are not served under these names.

Unknown fields are ignored; these are refused, since a reply that does not obey them would look like one that does. A
value that says nothing (null, false, an empty list) is none.
"""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter
from typing import Any

import msgspec

from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import field_error

INSTEAD = {
    "functions": "tools",
    "function_call": "tool_choice",
    "structured_outputs": "response_format, regex or ebnf",
    "guided_json": "response_format",
    "guided_regex": "regex",
    "guided_choice": "regex",
    "guided_grammar": "ebnf",
    "json_schema": "response_format",
    "grammar": "ebnf",
    "allowed_token_ids": "regex",
    "bad_words": "logit_bias",
    "structural_tag": "response_format or tools",
    "format": "response_format",
    "output_format": "response_format",
    "output_config": "response_format",
    "response_schema": "response_format",
    "text": "response_format",
    "sampling_params": "its fields in the body itself",
    "extra_body": "its fields in the body itself",
    "nvext": "its fields in the body itself",
}
"""Names of OpenAI's first function calls and Responses API, of vLLM, SGLang, llama.cpp, Ollama, Anthropic and NVIDIA,
and what to send. The last three hold such fields one level down."""


_values = attrgetter(*INSTEAD)


class UnservedFields(msgspec.Struct, frozen=True, kw_only=True):
    """Decoded to be refused by `check_served`."""

    functions: Any = None
    function_call: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    json_schema: Any = None
    grammar: Any = None
    allowed_token_ids: Any = None
    bad_words: Any = None
    structural_tag: Any = None
    format: Any = None
    output_format: Any = None
    output_config: Any = None
    response_schema: Any = None
    text: Any = None
    sampling_params: Any = None
    extra_body: Any = None
    nvext: Any = None


def check_served(request: UnservedFields, passed: Collection[str] = ()) -> None:
    """Raises `RequestError` that names the field and what to send instead.

    Args:
        passed: fields that go to the engine as they are, whose business they then are.
    """
    if not any(_values(request)):  # as nearly always
        return
    for name, instead in INSTEAD.items():
        if getattr(request, name) and name not in passed:
            raise field_error(name, f"not supported; send {instead}", ErrorCode.UNSUPPORTED_PARAMETER)
