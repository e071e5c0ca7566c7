"""The request in llama.cpp's words: nothing is left to the server's defaults."""

from __future__ import annotations

import re
from typing import Any

import pytest

from paraserve.engines.base import Constraint, EngineError, Sampling
from paraserve.engines.llama_cpp.body import completion_body, grammar_of, lark_regex, samplers_of, seed_of

SERVER_DEFAULTS_THAT_ARE_NOT_OURS = {
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.05,
    "temperature": 0.8,
    "repeat_last_n": 64,
    "n_predict": -1,
}


def body(sampling: Sampling, **changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"limit": 8, "ignore_eos": False, "seed": 1, "window": 512} | changes
    return completion_body([1, 2, 2], sampling, **options)


def test_plain_sampling_overrides_every_default_of_the_server() -> None:
    sent = body(Sampling(max_tokens=8))
    for field, default in SERVER_DEFAULTS_THAT_ARE_NOT_OURS.items():
        assert sent[field] != default
    assert sent["samplers"] == ["temperature"]
    assert sent["post_sampling_probs"] is False
    assert sent["mirostat"] == 0
    assert sent["logit_bias"] == []


def test_samplers_follow_in_a_fixed_order_and_those_that_are_off_do_not_run() -> None:
    every = Sampling(8, temperature=0.7, top_p=0.9, top_k=5, min_p=0.1, presence_penalty=0.5)
    assert samplers_of(every) == ["penalties", "temperature", "top_k", "top_p", "min_p"]
    assert samplers_of(Sampling(8, top_p=0.9)) == ["temperature", "top_p"]


def test_temperature_zero_leaves_nothing_to_cut_so_that_it_is_greedy() -> None:
    assert samplers_of(Sampling(8, temperature=0.0, top_p=0.1, top_k=3, min_p=0.5)) == ["temperature"]


@pytest.mark.parametrize("seed", [0, 1, -1, 2**31, 2**32 - 1, 2**32, 2**63])
def test_a_seed_is_32_bits_and_never_the_one_that_means_choose(seed: int) -> None:
    assert 0 <= seed_of(Sampling(1, seed=seed)) < 2**32 - 1


def test_no_seed_is_a_new_one_each_time() -> None:
    assert len({seed_of(Sampling(1)) for _ in range(8)}) > 1


def test_what_the_server_would_fine_in_the_prompt_is_given_back() -> None:
    sampling = Sampling(8, presence_penalty=0.5, frequency_penalty=0.25, logit_bias={2: 1.0})
    sent = body(sampling, forgiven=[1, 2, 2])
    assert dict(map(tuple, sent["logit_bias"])) == {1: 0.75, 2: 2.0}


def test_banned_ids_are_forbidden_and_not_merely_unlikely() -> None:
    assert [7, False] in body(Sampling(8), banned=(7,))["logit_bias"]


def test_top_k_off_is_zero_however_it_is_spelled() -> None:
    assert body(Sampling(8, top_k=-1))["top_k"] == 0


@pytest.mark.parametrize("pattern", ["a/b", r"a\/b", "a\nb", r"a\\/b", r"[/\n]", "a\\\nb", "", "/"])
def test_a_regex_is_one_lark_literal_on_one_line(pattern: str) -> None:
    literal = lark_regex(pattern)
    assert "\n" not in literal
    if not pattern:
        assert literal == '""'
        return
    assert literal[0] == literal[-1] == "/"
    inside = literal[1:-1]
    assert re.search(r"(?<!\\)(?:\\\\)*/", inside) is None, "a bare slash would end the literal"
    for text in ("a/b", "a\nb", "a\\/b", "/", "\n"):
        assert bool(re.fullmatch(inside, text)) == bool(re.fullmatch(pattern, text))


def test_json_is_spaced_the_way_models_write_it_unless_the_schema_says_how() -> None:
    ours = grammar_of(Constraint("json_schema", '{"type": "object"}'), lark=True)["grammar"]
    theirs = grammar_of(
        Constraint("json_schema", '{"x-guidance": {"whitespace_flexible": true}, "type": "object"}'), lark=True
    )["grammar"]
    assert '"whitespace_flexible":false' in ours
    assert '"whitespace_flexible":true' in theirs


def test_without_llguidance_a_schema_goes_to_the_servers_own_converter() -> None:
    assert grammar_of(Constraint("json_object"), lark=False) == {"json_schema": {"type": "object"}}


@pytest.mark.parametrize("value", ["{", "[]", "3", '"object"'])
def test_a_schema_that_is_none_is_the_clients_error(value: str) -> None:
    with pytest.raises(EngineError) as caught:
        grammar_of(Constraint("json_schema", value), lark=True)
    assert (caught.value.status, caught.value.param) == (400, "response_format")
