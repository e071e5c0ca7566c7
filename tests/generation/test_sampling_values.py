"""Which sampling values are in force."""

from __future__ import annotations

from typing import Any

import pytest

from paraserve.engines.base import Sampling
from paraserve.generation.sampling import model_defaults, resolve_sampling
from paraserve.protocol.errors import RequestError
from paraserve.protocol.sampling import SamplingFields

FILE = {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "do_sample": True, "pad_token_id": 5}


def resolved(defaults: dict[str, Any] | None = None, **fields: Any) -> Sampling:
    return resolve_sampling(
        SamplingFields(**fields), max_tokens=10, defaults=model_defaults(defaults or {}), vocab_size=100
    )


def test_the_api_defaults_are_openais() -> None:
    assert resolved() == Sampling(max_tokens=10)


def test_the_models_own_defaults_fill_what_the_request_leaves_out() -> None:
    sampling = resolved(FILE)
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.7, 20, 0.8)


@pytest.mark.parametrize(("field", "value"), [("temperature", 0.0), ("top_p", 1.0), ("top_k", 0)])
def test_zero_and_one_are_set_and_win_over_the_file(field: str, value: float) -> None:
    assert getattr(resolved(FILE, **{field: value}), field) == value


def test_null_is_unset() -> None:
    assert resolved(FILE, temperature=None, top_p=None) == resolved(FILE)


@pytest.mark.parametrize("whole", [100, 101, 2**31, 2**32 + 1, 10**30])
def test_a_top_k_of_the_whole_vocabulary_is_off(whole: int) -> None:
    assert resolved(FILE, top_k=whole).top_k == 0
    assert resolved(FILE, top_k=99).top_k == 99


def test_minus_one_is_top_k_off() -> None:
    assert resolved(FILE, top_k=-1).top_k == 0


def test_do_sample_false_is_greedy_only_where_the_file_names_no_temperature() -> None:
    assert resolved({"do_sample": False}).temperature == 0.0
    assert resolved({"do_sample": False, "temperature": 0.6}).temperature == 0.6


def test_a_seed_of_any_size_is_folded_into_the_engines_range() -> None:
    assert resolved(seed=2**40 + 7).seed == 7
    assert resolved(seed=-1).seed == 2**32 - 1
    assert resolved().seed is None


def test_stop_token_ids_must_be_ids() -> None:
    assert resolved(stop_token_ids=[99]).stop_token_ids == (99,)
    for wrong in (100, 10**20):
        with pytest.raises(RequestError) as caught:
            resolved(stop_token_ids=[wrong])
        assert caught.value.param == "stop_token_ids"


def test_logit_bias_is_by_token_id() -> None:
    assert resolved(logit_bias={"5": -100.0}).logit_bias == {5: -100.0}


@pytest.mark.parametrize("key", ["100", "-1", "x", "", "1.5", "9" * 30, "٣"])
def test_a_bias_on_no_token_is_refused(key: str) -> None:
    with pytest.raises(RequestError) as caught:
        resolved(logit_bias={key: 1.0})
    assert caught.value.param == "logit_bias"
