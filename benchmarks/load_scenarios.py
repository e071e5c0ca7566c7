"""What is measured: for each scenario the request, and the reply that our own scripted engine plays.

A reply is real token ids of a real tokenizer, so that detokenizing and parsing count. It never knows how a server is
started or measured. A peer (``--against``) gets the same requests; what it answers is its own.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import checkout  # noqa: F401 - the tests' kits

from paraserve.formats.registry import get_format
from paraserve.formats.types import ReplyStart
from paraserve.tokenizers.base import Tokenizer
from tests.formats.render import Call, render

Kind = Literal["text", "reasoning", "call", "calls"]
Api = Literal["chat", "responses", "messages"]

PATHS: Mapping[Api, str] = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}

WORDS = (
    " the model answers with words of the usual length, and then a list:\n- one\n- two (of 3)\n\n"
    'It says "so", uses `code[0]`, <b>tags</b>, 100 % café, and goes on.'
)
SENTENCE = "Everything that a request brings has to be read, rendered and tokenized before a token can come. "


def _tool(name: str) -> dict[str, Any]:
    note = {"type": "string", "description": "What to write into the note, as plain text."}
    count = {"type": "integer", "description": "How many copies of the note to keep."}
    schema = {"type": "object", "properties": {"body": note, "count": count}, "required": ["body"]}
    about = f"Use {name} to keep a note for later turns of the conversation."
    return {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}


TOOLS = [_tool(name) for name in ("save_note", "find_note", "read_file", "run_query", "send_mail")]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Args:
    format: the family whose spelling the reply has and whose parser reads it.
    prompt_bytes: of the user's message.
    """

    name: str
    kind: Kind = "text"
    format: str = "qwen3"
    stream: bool = True
    tools: bool = False
    prompt_bytes: int = 100

    def body(self, api: Api = "chat", *, store: bool = False) -> dict[str, Any]:
        """The request in the words of an API, without the model's name."""
        chat = self._chat()
        if api == "chat":
            return chat
        messages, limit, functions = (
            chat["messages"],
            chat["max_tokens"],
            [t["function"] for t in chat.get("tools", ())],
        )
        if api == "messages":
            tools = [{**function, "input_schema": function["parameters"]} for function in functions]
            return {"messages": messages, "max_tokens": limit, "tools": tools, "stream": self.stream}
        tools = [{"type": "function", **function} for function in functions]
        asked = {"input": messages, "max_output_tokens": limit, "tools": tools}
        return {**asked, "stream": self.stream, "store": store}

    def _chat(self) -> dict[str, Any]:
        text = "".join(itertools.islice(itertools.cycle(SENTENCE), self.prompt_bytes))
        body: dict[str, Any] = {"messages": [{"role": "user", "content": text}], "max_tokens": 20_000}
        if self.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if self.tools:
            body["tools"] = TOOLS
        return body

    def reply_ids(self, tokenizer: Tokenizer, tokens: int, end_id: int) -> list[int]:
        """The reply, of about so many tokens."""
        words = tokenizer.encode(WORDS)
        filler = tokenizer.decode([words[i % len(words)] for i in range(tokens)])
        if self.kind == "text":
            return [*tokenizer.encode(filler)[: tokens - 1], end_id]
        format = get_format(self.format, "both")
        if self.kind == "reasoning":
            text = render(format, reasoning=filler, content="Done.", start=ReplyStart.HEADER)
        else:
            each = filler if self.kind == "call" else filler[: len(filler) // 8]
            ids = ("functions.save_note:%d" if self.format == "kimi_k2" else "call%05d",)
            calls = [Call("save_note", {"body": each}, ids[0] % i) for i in range(1 if self.kind == "call" else 8)]
            text = render(format, calls=calls, start=ReplyStart.CONTENT)
        return [*tokenizer.encode(text), end_id]

    def flags(self) -> list[str]:
        """The server's flags for it."""
        return ["--tool-call-parser", self.format, "--reasoning-parser", self.format]


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("plain"),
        Scenario("reasoning", kind="reasoning"),
        Scenario("glm-call", kind="call", format="glm45", tools=True),
        Scenario("glm-8-calls", kind="calls", format="glm45", tools=True),
        Scenario("kimi-call", kind="call", format="kimi_k2", tools=True),
        Scenario("qwen-call", kind="call", format="qwen3_coder", tools=True),
        Scenario("hermes-call", kind="call", format="hermes", tools=True),
        Scenario("small", stream=False),
        Scenario("1200-token prompt, 5 tools", stream=False, tools=True, prompt_bytes=2_900),
        Scenario("200 KB prompt", stream=False, prompt_bytes=200_000),
    )
}


def script(ids: list[int], *, pace: float, burst: int, in_step: bool = False) -> str:
    """The scripted engine's file: one reply for every request."""
    reply = {"token_ids": ids, "delay": pace, "burst": burst, "in_step": in_step}
    return json.dumps({"context_length": 131_072, "replies": [reply]})
