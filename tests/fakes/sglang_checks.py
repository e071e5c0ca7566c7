"""What SGLang 0.5.23 checks of a request to ``/generate``, and in which words.

Every check was seen on the running server. ``tests/engines/sglang_rules.py`` asks the fake and, by
``scripts/sglang_contract.py``, the real one the same, so that the fake cannot be the kinder of the two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SAMPLING_KEYS = frozenset(
    {"max_new_tokens", "min_new_tokens", "stop", "stop_token_ids", "stop_regex", "temperature", "top_p", "top_k"}
    | {"min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "n", "json_schema", "regex", "ebnf"}
    | {"structural_tag", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim"}
    | {"stream_interval", "logit_bias", "sampling_seed", "custom_params", "beam_width", "watermark", "choice"}
)
GRAMMARS = ("json_schema", "regex", "ebnf", "structural_tag")
PENALTIES = ("frequency_penalty", "presence_penalty")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The server's command line, as far as it decides what a request may ask."""

    context_length: int = 4096
    max_total_tokens: int = 16384
    page_size: int = 1
    grammar_backend: str = "xgrammar"
    skip_tokenizer_init: bool = False
    deterministic: bool = False

    @property
    def pool(self) -> int:
        """Tokens of the KV pool, which has whole pages."""
        return self.max_total_tokens // self.page_size * self.page_size

    @property
    def max_req_input_len(self) -> int:
        return min(self.context_length, self.pool) - 6

    def told(self) -> dict[str, Any]:
        """Its part of ``/server_info``. The grammar backend is named even where there is none."""
        return {
            "context_length": None,
            "max_req_input_len": self.max_req_input_len,
            "max_total_num_tokens": self.pool,
            "page_size": self.page_size,
            "grammar_backend": self.grammar_backend,
            "skip_tokenizer_init": self.skip_tokenizer_init,
            "enable_deterministic_inference": self.deterministic,
        }

    def reply_limit(self, prompt: int, wanted: int) -> int:
        """How many tokens the reply gets: whatever is more is left out without a word."""
        room = self.max_req_input_len + 4 - prompt
        pages = -(-prompt // self.page_size) + 1
        return max(0, min(wanted, room, self.pool - pages * self.page_size - 1))


def refused_at_once(body: Mapping[str, Any], arguments: Arguments) -> str:
    """What the front end refuses before the scheduler sees it: an error event of a stream. "" where it does not."""
    params, prompt = body["sampling_params"], len(body["input_ids"])
    if not prompt:
        return "input_ids cannot be empty."
    if prompt >= (context := arguments.context_length):
        return f"The input ({prompt} tokens) is longer than the model's context length ({context} tokens)."
    if (total := prompt + params["max_new_tokens"]) > context:
        return (
            f"Requested token count exceeds the model's maximum context length of {context} tokens. You requested a "
            f"total of {total} tokens: {prompt} tokens from the input messages and {params['max_new_tokens']} tokens "
            "for the completion. Please reduce the number of tokens in the input messages or the completion to fit "
            "within the limit."
        )
    return _wrong_value(params, arguments)


def _wrong_value(params: Mapping[str, Any], arguments: Arguments) -> str:
    if (value := params.get("temperature", 1.0)) < 0.0:
        return f"temperature must be a non-negative finite number, got {value}."
    if not 0.0 < (value := params.get("top_p", 1.0)) <= 1.0:
        return f"top_p must be in (0, 1], got {value}."
    if not 0.0 <= (value := params.get("min_p", 0.0)) <= 1.0:
        return f"min_p must be in [0, 1], got {value}."
    for name in PENALTIES:
        if not -2.0 <= (value := params.get(name, 0.0)) <= 2.0:
            return f"{name} must be in [-2, 2], got {value}."
    if not 0.0 < (value := params.get("repetition_penalty", 1.0)) <= 2.0:
        return f"repetition_penalty must be in (0, 2] (1.0 = no penalty), got {value}."
    if (least := params.get("min_new_tokens", 0)) > (most := params["max_new_tokens"]):
        return f"min_new_tokens must be in [0, max_new_tokens({most})], got {least}."
    if sum(name in params for name in GRAMMARS) > 1:
        return "Only one of json_schema, regex, ebnf, or structural_tag can be set."
    if least and arguments.skip_tokenizer_init:
        return (
            f"min_new_tokens={least} is unavailable when skip_tokenizer_init=True (requires tokenizer for "
            "eos_token_id)."
        )
    return ""


def given_up(body: Mapping[str, Any], arguments: Arguments) -> str:
    """Why the scheduler gives the request up: a finish ``abort`` with status 400. "" where it runs."""
    prompt, longest = len(body["input_ids"]), arguments.max_req_input_len
    if prompt >= longest:
        return (
            f"Input length ({prompt} tokens) exceeds the maximum allowed length ({longest} tokens). Use a shorter "
            "input or enable --allow-auto-truncate."
        )
    return _no_grammar(body["sampling_params"], arguments)


def _no_grammar(params: Mapping[str, Any], arguments: Arguments) -> str:
    kind = next((name for name in GRAMMARS if name in params), None)
    if kind is None:
        return ""
    if arguments.skip_tokenizer_init or arguments.grammar_backend == "none":
        return (
            "Grammar-based generation (json_schema, regex, ebnf, structural_tag) is not supported when the server is "
            "launched with --grammar-backend none"
        )
    lark = arguments.grammar_backend == "llguidance"
    failed = f"Failed to compile {kind.removesuffix('_schema')} grammar: "
    if kind == "ebnf" and not lark and "::=" not in params[kind]:
        return failed + "EBNF lexer error"
    if kind == "structural_tag" and lark:
        return failed
    why = bad_json(params[kind]) if kind in ("json_schema", "structural_tag") else ""
    return why and failed + why


def bad_json(value: str) -> str:
    """Why a schema does not compile; "" where it does."""
    try:
        json.loads(value)
    except ValueError:
        return "Invalid JSON"
    return "cannot resolve $ref" if '"$ref"' in value else ""
