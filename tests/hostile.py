"""Requests that are made to hold up others: every kind that a server has met, varied by a seed, as large as wanted."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.api.wire import CHAT, COMPLETIONS, USER
from tests.fuzz import changed

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"


@dataclass(frozen=True)
class Attack:
    """A request. ``settings`` are the server's, where the kind needs some."""

    content: Any = None
    path: str = CHAT
    headers: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    packed: bool = False

    @property
    def unpacked(self) -> bytes:
        if isinstance(self.content, bytes):
            return self.content
        return b"" if self.content is None else json.dumps(self.content).encode()

    @property
    def sent(self) -> tuple[bytes, dict[str, str]]:
        """The body as it goes over the wire, and the headers."""
        if not self.packed:
            return self.unpacked, dict(self.headers)
        return gzip.compress(self.unpacked, 1), {**self.headers, "content-encoding": "gzip"}


Kind = Callable[[random.Random, int], Attack]
"""Makes one of about so many bytes."""

TOOL: dict[str, Any] = {"type": "function"}
HEAD = 57_000
"""Bytes of a header, close to what a head may have."""
LETTERS = ("x", "é", "\n", '"', "\ud800", "字", "<|user|>", " ", "𝔘")


def _words(lot: random.Random, size: int) -> dict[str, str]:
    return {"authorization": " ".join(f"w{lot.randrange(10**6)}" for _ in range(min(size, HEAD) // 8))}


def _odd(lot: random.Random, size: int) -> dict[str, str]:
    return {"authorization": (lot.choice(('"', "/", "\\")) + '"/\\') * (min(size, HEAD) // 4)}


def _text(lot: random.Random, size: int) -> str:
    """Mostly one letter, as the worst texts are."""
    return lot.choice(LETTERS) * (size // 2) + lot.choice(LETTERS) * lot.randrange(1, 9)


def _chat(content: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], **fields}


def _nested(size: int, opening: bytes, closing: bytes = b"") -> bytes:
    return b'{"messages": ' + opening * (size // 2) + closing * (size // 2) + b"}"


def _schema(lot: random.Random, size: int) -> dict[str, Any]:
    """Objects in objects, with many letters in their names."""
    properties = {f"{lot.choice('abcxyz')}{number}": {"enum": [f"v{number}"]} for number in range(size // 40)}
    return {"type": "object", "properties": properties}


def _of_schema(schema: Any) -> dict[str, Any]:
    return _chat("hi", response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema}})


KINDS: dict[str, Kind] = {
    "words of a credential, a long path": lambda lot, size: Attack(
        path="/x" * (min(size, HEAD) // 2), headers=_words(lot, size)
    ),
    "an odd credential, a long path": lambda lot, size: Attack(
        path="/x" * (min(size, HEAD) // 2), headers=_odd(lot, size)
    ),
    "words, a long model": lambda lot, size: Attack(
        {"messages": USER, "model": _text(lot, size)}, headers=_words(lot, size)
    ),
    "an odd credential, a long role": lambda lot, size: Attack(
        {"messages": [{"role": _text(lot, size)}]}, headers=_odd(lot, size)
    ),
    "an odd credential, a body in the log": lambda lot, size: Attack(
        _chat("hi", user=_text(lot, size)), headers=_odd(lot, size), settings={"log_requests": "bodies"}
    ),
    "fields in the log": lambda lot, size: Attack(
        _chat("hi") | {f"k{number}": 1 for number in range(size // 12)},
        headers=_odd(lot, size),
        settings={"log_requests": "parameters"},
    ),
    "messages": lambda lot, size: Attack({"messages": USER * (size // 40)}, lot.choice((CHAT, f"{CHAT}/render"))),
    "parts": lambda lot, size: Attack(_chat([{"type": "text", "text": "x"}] * (size // 30))),
    "tools": lambda lot, size: Attack(
        _chat("hi", tools=[TOOL | {"function": {"name": f"f{number}"}} for number in range(size // 50)])
    ),
    "a tool's long text": lambda lot, size: Attack(
        _chat("hi", tools=[TOOL | {"function": {"name": "f", "description": _text(lot, size)}}])
    ),
    "a tool's schema": lambda lot, size: Attack(
        _chat("hi", tools=[TOOL | {"function": {"name": "f", "strict": True, "parameters": _schema(lot, size)}}])
    ),
    "a schema to obey": lambda lot, size: Attack(_of_schema(_schema(lot, size))),
    "a class of many letters": lambda lot, size: Attack(
        _chat("hi", regex="[" + "".join(map(chr, range(0x4E00, 0x4E00 + min(size // 6, 20_000)))) + "]+")
    ),
    "documents": lambda lot, size: Attack(_chat("hi", documents=[{"text": "x" * 100}] * (size // 110))),
    "a variable of the template": lambda lot, size: Attack(
        _chat("hi", chat_template_kwargs={"x": [[1]] * (size // 5)})
    ),
    "halves of characters": lambda lot, size: Attack(_chat("\n" * (size // 2) + "\ud800")),
    "a text": lambda lot, size: Attack(_chat(_text(lot, size))),
    "much in few packed bytes": lambda lot, size: Attack(_chat(_text(lot, size)), packed=True),
    "objects in few packed bytes": lambda lot, size: Attack(_chat("hi", x=[[]] * (size // 4)), packed=True),
    "nesting": lambda lot, size: Attack(_nested(size, lot.choice((b"[", b'{"a":')), lot.choice((b"", b"]")))),
    "digits": lambda lot, size: Attack(
        b'{"messages": [], "%b": %b}' % (lot.choice((b"seed", b"temperature", b"n", b"x")), b"9" * size)
    ),
    "a prompt that cannot fit": lambda lot, size: Attack({"prompt": _text(lot, size)}, COMPLETIONS),
    "prompts": lambda lot, size: Attack(
        {"prompt": [_text(lot, max(2, size // 1024))] * 1024, "max_tokens": 1}, COMPLETIONS
    ),
    "choices": lambda lot, size: Attack(
        {"prompt": [_text(lot, max(2, size // 8))] * 8, "n": 128, "max_tokens": 1}, COMPLETIONS
    ),
    "ids": lambda lot, size: Attack({"prompt": [lot.randrange(200)] * (size // 3)}, COMPLETIONS),
    "a text to tokenize": lambda lot, size: Attack(
        {"prompt": _text(lot, size), "return_token_strs": True}, "/tokenize"
    ),
    "ids to decode": lambda lot, size: Attack({"tokens": [65] * (size // 4)}, "/detokenize"),
    "a count of tokens": lambda lot, size: Attack({"messages": USER * (size // 40)}, f"{MESSAGES}/count_tokens"),
    "a message of another API": lambda lot, size: Attack(
        {"model": "toy", "max_tokens": 1, "messages": [{"role": "user", "content": _text(lot, size)}]}, MESSAGES
    ),
    "items of a response": lambda lot, size: Attack(
        {"model": "toy", "input": [{"role": "user", "content": "x"}] * (size // 40)}, RESPONSES
    ),
    "tokens of a response's input": lambda lot, size: Attack(
        {"model": "toy", "input": _text(lot, size)}, f"{RESPONSES}/input_tokens"
    ),
    "anything": lambda lot, size: Attack(
        changed(_chat([{"type": "text", "text": _text(lot, size)}], tools=[TOOL], n=2, stop=["x"], logprobs=True), lot),
        lot.choice((CHAT, COMPLETIONS, MESSAGES, RESPONSES, "/tokenize")),
    ),
}


def attack(kind: str, seed: int, size: int) -> Attack:
    return KINDS[kind](random.Random(f"{kind} {seed}"), size)
