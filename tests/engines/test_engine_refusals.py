"""What clients are told when an engine refuses or fails."""

import pytest

from paraserve.engines.base import Constraint
from paraserve.engines.http.refusals import engine_message, refusal, safe


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "top_p must be in (0, 1]", "code": 400}}', "top_p must be in (0, 1]"),
        (b'{"error": "Unexpected keyword \'foo\'"}', "Unexpected keyword 'foo'"),
        (b'{"object": "error", "message": "no such model"}', "no such model"),
        (b'{"detail": [{"loc": ["body"], "msg": "field required"}]}', "field required"),
        (b"[]", ""),
        (b"{}", ""),
        (b"Bad Gateway", "Bad Gateway"),
        (
            b'{"error": {"message": "Prefill error: {\\"error\\": {\\"message\\": \\"say \\\\\\"no\\\\\\"\\"}}"}}',
            'say "no"',
        ),
        (b'data: {\'error\': {"message":{"error":{"message":"inner"}}}}', "inner"),
        (b'data: {\'error\': {"message":{"error":{"message":"top_p m', "top_p m…"),
        (b'{"error": {"message": "Prefill server error: {\\"error\\": {\\"mess"}}', "Prefill server error"),
    ],
)
def test_message_is_found_in_every_engines_error_body(body: bytes, message: str) -> None:
    assert engine_message(body) == message


@pytest.mark.parametrize(
    ("status", "ours", "code"),
    [
        (400, 400, "invalid_value"),
        (413, 413, "invalid_value"),
        (422, 400, "invalid_value"),
        (429, 429, "engine_overloaded"),
        (401, 502, "engine_error"),
        (403, 502, "engine_error"),
        (404, 502, "engine_error"),
        (408, 504, "engine_timeout"),
        (500, 502, "engine_error"),
        (502, 502, "engine_error"),
        (503, 503, "engine_overloaded"),
        (504, 504, "engine_timeout"),
        (302, 502, "engine_error"),
        (499, 502, "engine_aborted"),
    ],
)
def test_status_of_the_engine_keeps_its_meaning(status: int, ours: int, code: str) -> None:
    error = refusal(status, "no")
    assert (error.status, error.code) == (ours, code)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("top_k must be -1 (disable) or at least 1, got 0.", "top_k"),
        ("max_new_tokens must be at least 0, got -4.", "max_tokens"),
        ("logit_bias must has keys in [0, 99], got 100.", "logit_bias"),
        ("sampling_seed must be an integer", "seed"),
        ("top_logprobs_num is too large", "top_logprobs"),
        ("the LoRA adapter lora_x is not loaded", "model"),
        ("something else", None),
    ],
)
def test_refusal_names_the_clients_field(message: str, param: str | None) -> None:
    assert refusal(400, message).param == param


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint("json_schema", "{}"),
        Constraint("regex", "[", param="regex"),
        Constraint("structural_tag", "{}", param="tool_choice"),
    ],
)
def test_refused_constraint_is_a_400_that_names_the_field_which_asked_for_it(constraint: Constraint) -> None:
    error = refusal(400, "Failed to compile json grammar: unknown $ref", constraint)
    assert (error.status, error.code, error.param) == (400, "invalid_constraint", constraint.param)


@pytest.mark.parametrize(
    "message",
    [
        # SGLang 0.5.23
        "The input (70000 tokens) is longer than the model's context length (65536 tokens).",
        "Requested token count exceeds the model's maximum context length of 65536 tokens. You requested a total of "
        "65540 tokens: 65530 tokens from the input messages and 10 tokens for the completion.",
        "Input length (65530 tokens) exceeds the maximum allowed length (65530 tokens). Use a shorter input or enable "
        "--allow-auto-truncate.",
        "Request prompt exceeds the KV memory budget: input_len=65536.",
        "Multimodal prompt is too long after expanding multimodal tokens. After expanding "
        "len(req.origin_input_ids_unpadded)=65000 => 65536 >= 65530.",
        "Request 7 exceeds the maximum number of tokens: 65540 > 65536",
        # vLLM 0.32
        "The decoder prompt (length 65537) is longer than the maximum model length of 65536.",
    ],
)
def test_context_overflow_has_its_own_code_in_every_engines_words(message: str) -> None:
    error = refusal(400, message)
    assert (error.status, error.code) == (400, "context_length_exceeded")
    assert "65536" in error.message or "65530" in error.message


def test_other_refusals_are_no_context_overflow() -> None:
    for message in ("stop: at most 16 strings, and one is too long", "max_new_tokens must be at least 0, got -4."):
        assert refusal(400, message).code == "invalid_value"


@pytest.mark.parametrize(
    "secret",
    [
        "http://10.0.0.7:30000/generate",
        "/opt/models/secret-model/config.json",
        "<sglang.Req object at 0x7f00deadbeef>",
        "10.0.0.7:8998",
        "localhost:30000",
        "tcp://[fd00::1]:5555",
        "C:\\models\\x",
    ],
)
def test_message_never_carries_an_address_a_path_or_an_object(secret: str) -> None:
    told = safe(f"cannot load {secret} now")
    assert secret not in told
    assert told.startswith("cannot load ")
    assert told.endswith(" now")


def test_stack_is_never_told() -> None:
    assert safe('Traceback (most recent call last):\n  File "x.py"') == "no reason given"
    assert safe("bad\n  File x.py line 4") == "bad"


def test_long_message_is_cut() -> None:
    assert len(safe("x" * 5000)) <= 300


@pytest.mark.parametrize("status", [500, 502, 503, 401])
def test_message_of_the_engines_own_failure_is_not_passed_on(status: int) -> None:
    assert "secret" not in refusal(status, "secret reason").message


def test_ordinary_words_are_left_alone() -> None:
    said = "top_p must be in (0, 1], got 1.5; use and/or 2.5/3"
    assert safe(said) == said
