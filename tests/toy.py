"""A small model for tests of everything above the engine: one token a byte, a few markers, a plain chat template.

It has the real tokenizer interface, the real template machinery and the scripted engine, so a test at the wire goes
the whole way of a request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from paraserve.api.app import create_app
from paraserve.deploy import choose_format, join
from paraserve.deployment import Deployment
from paraserve.engines.base import EngineInfo
from paraserve.engines.scripted.engine import ScriptedEngine, ScriptedReply
from paraserve.settings import ServerSettings
from paraserve.tokenizers.checkpoint import Checkpoint
from paraserve.tokenizers.token_table import BlankPrefix

MARKERS = ("<|user|>", "<|assistant|>", "<|end|>", "<think>", "</think>", "<tool_call>", "</tool_call>")
SPECIAL = frozenset({"<|user|>", "<|assistant|>", "<|end|>"})

TEMPLATE = """\
{%- for message in messages -%}
<|{{ 'assistant' if message.role == 'assistant' else 'user' }}|>
{%- if message.role == 'tool' %}[result] {{ message.content }}
{%- elif message.content is string %}{{ message.content }}
{%- else %}{% for part in message.content %}{{ part.text }}{% endfor %}
{%- endif -%}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call | tojson }}</tool_call>{% endfor -%}
{%- endfor -%}
{%- if tools %}[tools {{ tools | tojson }}]{% endif -%}
{%- if add_generation_prompt %}<|assistant|>
{%- if thinking is defined %}{{ '<think>' if thinking else '<think></think>' }}{% endif -%}
{%- endif -%}
"""

EVERY_CONSTRAINT = frozenset({"json_schema", "json_object", "regex", "ebnf", "lark", "structural_tag"})


class ByteTokenizer:
    """Ids 0 to 255 are the bytes; markers follow."""

    blank_prefix = BlankPrefix()

    def __init__(self, *, bos: str | None = None) -> None:
        self.added_tokens = {text: 256 + i for i, text in enumerate(MARKERS)}
        self.special_ids = frozenset(self.added_tokens[text] for text in SPECIAL)
        self.eos_token_ids = frozenset({self.added_tokens["<|end|>"]})
        self.vocab_size = 256 + len(MARKERS)
        self.bos_token = bos
        self.eos_token = "<|end|>"
        self._texts = {i: text.encode() for text, i in self.added_tokens.items()}
        self._pattern = re.compile("(" + "|".join(map(re.escape, MARKERS)) + ")")

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        ids = [self.added_tokens[self.bos_token]] if add_special_tokens and self.bos_token else []
        for piece in self._pattern.split(text):
            ids += [self.added_tokens[piece]] if piece in self.added_tokens else piece.encode()
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        if token_id in self._texts:
            return self._texts[token_id]
        if not 0 <= token_id < 256:
            raise ValueError(f"no token {token_id}")
        return bytes([token_id])

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        shown = [i for i in token_ids if not (skip_special_tokens and i in self.special_ids)]
        return b"".join(map(self.token_bytes, shown)).decode("utf-8", "replace")


TOKENIZER = ByteTokenizer()
END = TOKENIZER.added_tokens["<|end|>"]


def reply(text: str, *, end: bool = True, **fields: Any) -> ScriptedReply:
    """A scripted reply that says ``text``, one token a chunk, and ends with the end token unless told otherwise."""
    return ScriptedReply(token_ids=[*TOKENIZER.encode(text), *([END] if end else [])], **fields)


def engine(*replies: ScriptedReply, **info: Any) -> ScriptedEngine:
    facts = {"context_length": 4096, "vocab_size": TOKENIZER.vocab_size, "version": "scripted"}
    facts |= {"eos_token_ids": TOKENIZER.eos_token_ids, "constraints": EVERY_CONSTRAINT, "prompt_logprobs": True}
    return ScriptedEngine(
        list(replies) or [reply("Hello.")], info=EngineInfo(**(facts | info)), decode=TOKENIZER.decode
    )


def deployment(
    scripted: ScriptedEngine,
    *,
    model_path: str = "models/toy",
    tokenizer: ByteTokenizer = TOKENIZER,
    template: str = TEMPLATE,
    generation_config: dict[str, Any] | None = None,
    **settings: Any,
) -> Deployment:
    """The toy behind ``scripted``. Reasoning is in ``<think>``, calls are Hermes', unless settings say otherwise."""
    formats = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes", "response_store": "memory"}
    checkpoint = Checkpoint(
        path=Path(model_path),
        tokenizer=tokenizer,
        templates={"default": template},
        generation_config=generation_config or {},
        eos_token_ids=tokenizer.eos_token_ids,
    )
    chosen = ServerSettings(**({"served_model_name": ("toy",)} | formats | settings))
    return join(chosen, checkpoint, choose_format(chosen, checkpoint), scripted, model_path=Path(model_path))


def client(served: Deployment) -> httpx.AsyncClient:
    """An HTTP client of an app that serves it, in this process."""
    transport = httpx.ASGITransport(create_app(served), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://toy")
