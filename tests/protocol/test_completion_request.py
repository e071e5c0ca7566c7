"""What a completion request may be, and what a wrong one is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from paraserve.protocol.completions import decode_completion
from paraserve.protocol.errors import RequestError


def decode(**fields: Any):
    return decode_completion(msgspec.json.encode(fields))


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ["a"]),
        ("", [""]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_each_form_of_a_prompt_is_a_list_of_prompts(prompt: Any, prompts: list[Any]) -> None:
    assert decode(prompt=prompt).prompts == prompts


@pytest.mark.parametrize("prompt", [[], ["a", 1], [[1], "a"], [1, -2], [True], [1.5], {}, 5, [[1, "a"]], None])
def test_a_prompt_of_no_known_form_is_a_400(prompt: Any) -> None:
    with pytest.raises(RequestError) as caught:
        decode(prompt=prompt)
    assert (caught.value.status, caught.value.param) == (400, "prompt")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode(prompt="a", **fields)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_no_tokens_are_fine_with_echo() -> None:
    assert decode(prompt="a", max_tokens=0, echo=True).max_tokens == 0
