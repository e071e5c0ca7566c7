"""How many tokens a reply may have."""

from __future__ import annotations

from typing import Any

import pytest

from paraserve.generation.limits import check_min_tokens, output_limit
from paraserve.protocol.errors import RequestError


def limit(**fields: Any) -> int:
    defaults = {"prompt_tokens": 700, "context_length": 1000, "requested": None, "default": None, "clamp": False}
    return output_limit(**{**defaults, **fields})


def refusal(**fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        limit(**fields)
    return caught.value


def test_unset_means_all_the_room_or_the_default_capped_by_it() -> None:
    assert limit() == 300
    assert limit(default=16) == 16
    assert limit(default=32768) == 300


def test_a_default_is_never_below_what_the_client_wants_at_least() -> None:
    assert limit(default=16, at_least=20) == 20
    assert limit(default=16, at_least=400) == 300
    assert limit(requested=10, at_least=20) == 10


def test_an_exact_fit_is_served_and_one_more_is_refused_with_the_room() -> None:
    assert limit(requested=300) == 300
    error = refusal(requested=301, param="max_completion_tokens")
    assert (error.status, error.code, error.param) == (400, "context_length_exceeded", "max_completion_tokens")
    for number in ("1000", "1001", "700", "301", "300"):
        assert number in error.message
    assert "maximum context length" in error.message


def test_the_operator_may_have_it_clamped() -> None:
    assert limit(requested=301, clamp=True) == 300
    assert limit(requested=5000, clamp=True) == 300
    assert limit(requested=200, clamp=True) == 200


@pytest.mark.parametrize("prompt_tokens", [1000, 1001, 50_000])
@pytest.mark.parametrize("fields", [{}, {"requested": 1}, {"requested": 5000, "clamp": True}, {"default": 16}])
def test_a_prompt_that_leaves_no_room_is_refused_whatever_the_limit(prompt_tokens: int, fields: Any) -> None:
    error = refusal(prompt_tokens=prompt_tokens, **fields)
    assert (error.status, error.code, error.param) == (400, "context_length_exceeded", "messages")
    assert str(prompt_tokens) in error.message
    assert "maximum context length is 1000 tokens" in error.message


@pytest.mark.parametrize("requested", [None, 0, 1])
def test_a_prompt_that_the_engine_alone_has_no_room_for_is_refused(requested: int | None) -> None:
    """SGLang refuses a prompt of the last places of the context, which a shorter one's reply may fill."""
    assert limit(prompt_tokens=995, longest_prompt=995) == 5
    error = refusal(prompt_tokens=996, longest_prompt=995, requested=requested, overflow_status=413)
    assert (error.status, error.code, error.param) == (413, "context_length_exceeded", "messages")
    for number in ("1000", "996", "995"):
        assert number in error.message


def test_the_overflow_status_is_for_the_prompt_alone() -> None:
    assert refusal(prompt_tokens=1001, overflow_status=413).status == 413
    assert refusal(requested=301, overflow_status=413).status == 400


def test_echo_without_new_tokens_may_fill_the_window() -> None:
    assert limit(prompt_tokens=1000, requested=0) == 0


def test_min_tokens_above_the_limit_is_refused() -> None:
    check_min_tokens(5, 5)
    check_min_tokens(None, 5)
    with pytest.raises(RequestError) as caught:
        check_min_tokens(6, 5)
    assert caught.value.param == "min_tokens"


def test_a_limit_that_does_not_fit_names_the_flag_that_would_cut_it() -> None:
    with pytest.raises(RequestError, match="--openai-max-tokens-overflow clamp"):
        output_limit(prompt_tokens=100, context_length=8192, requested=32_768, default=None, clamp=False)
