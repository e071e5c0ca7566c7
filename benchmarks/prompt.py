"""Rendering and tokenizing chat prompts, beside `transformers`' ``apply_chat_template``.

    pip install transformers jinja2
    python benchmarks/prompt.py CHECKPOINT_DIR [CHECKPOINT_DIR ...]

A checkpoint directory needs ``tokenizer.json``, ``tokenizer_config.json`` and a chat template; no weights are read.
Each run sees a conversation that was not seen before (every message carries words of its own), so that no cache
answers. Theirs gets messages that are perfect for the template; ours gets them as a client sends them, and validates
and adapts them in the time shown. Microseconds, median. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from paraserve.prompt.chat import ChatPrompt
from paraserve.protocol.chat import ChatCompletionRequest
from paraserve.tokenizers.base import Tokenizer
from paraserve.tokenizers.checkpoint import load_checkpoint

SIZES = {"1 KB": 1_000, "10 KB": 10_000, "200 KB": 200_000}
RUNS = {"1 KB": 200, "10 KB": 60, "200 KB": 12}
WORDS = (
    "tool",
    "returned",
    "rows",
    "where",
    "value",
    "exceeds",
    "café",
    "北京",
    "index[42]",
    "!=",
    "None",
    "and",
    "so",
)


class NoTokenizer:
    """Lets a render be measured alone."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return []


def prose(chooser: random.Random, chars: int) -> str:
    words: list[str] = []
    while chars > 0:
        word = chooser.choice(WORDS) if chooser.random() < 0.8 else f"{chooser.getrandbits(32):x}"
        words.append(word)
        chars -= len(word) + 1
    return " ".join(words)


def conversation(chars: int, seed: int) -> list[dict[str, Any]]:
    """Turns of user, call, result and answer, about ``chars`` characters together."""
    chooser = random.Random(seed)
    piece = min(600, chars // 4)
    messages: list[dict[str, Any]] = [{"role": "system", "content": prose(chooser, piece)}]
    used = piece
    while used < chars:
        number = f"call_{chooser.getrandbits(40)}"
        arguments = {"query": prose(chooser, piece // 4), "limit": chooser.randrange(99)}
        function = {"name": "search", "arguments": arguments}
        messages += [
            {"role": "user", "content": prose(chooser, piece)},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": number, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": number, "content": prose(chooser, piece)},
            {"role": "assistant", "content": prose(chooser, piece)},
        ]
        used += piece * 3 + piece // 4
    return [*messages, {"role": "user", "content": "go on"}]


def on_the_wire(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same conversation as an OpenAI client sends it: null content, arguments as JSON text."""
    sent = json.loads(json.dumps(messages))
    for message in sent:
        for call in message.get("tool_calls", ()):
            message["content"] = None
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    return list(sent)


def tools(count: int) -> list[dict[str, Any]]:
    schema = {
        "type": "object",
        "properties": {
            name: {"type": "string", "description": "what to look for"} for name in ("query", "path", "mode")
        },
        "required": ["query"],
    }
    return [
        {"type": "function", "function": {"name": f"tool_{n}", "description": "Does a thing.", "parameters": schema}}
        for n in range(count)
    ]


def microseconds(work: Callable[[int], object], runs: int) -> float:
    """The median over ``runs`` calls, after one to warm up."""
    work(-1)
    taken = []
    for run in range(runs):
        start = time.perf_counter()
        work(run)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e6


class Contest:
    """Both ways through one checkpoint."""

    def __init__(self, directory: Path) -> None:
        checkpoint = load_checkpoint(directory)
        self.reference = AutoTokenizer.from_pretrained(str(directory))
        self.ours = ChatPrompt(checkpoint)
        self.render_only = ChatPrompt(replace(checkpoint, tokenizer=NoTokenizer(checkpoint.tokenizer)))
        self.tools = tools(10)
        self.options: dict[str, Any] = {
            "tools": self.tools,
            "add_generation_prompt": True,
            "chat_template": checkpoint.templates["default"],
        }

    def theirs(self, conversations: list[list[dict[str, Any]]], tokenize: bool) -> Callable[[int], Any]:
        return lambda run: self.reference.apply_chat_template(conversations[run + 1], tokenize=tokenize, **self.options)

    def mine(self, conversations: list[list[dict[str, Any]]], prompt: ChatPrompt) -> Callable[[int], Any]:
        return lambda run: prompt.prepare(ChatCompletionRequest(messages=conversations[run + 1], tools=self.tools))

    def size(self, chars: int, runs: int) -> tuple[int, list[float]]:
        """Tokens of the conversation, and microseconds: render and both, theirs and ours."""
        perfect = [conversation(chars, seed) for seed in range(-1, runs)]
        wire = [on_the_wire(messages) for messages in perfect]
        ids = self.mine(wire, self.ours)(0).token_ids
        if ids != list(self.theirs(perfect, True)(0)["input_ids"]):
            raise SystemExit("the two do not agree on the ids")
        work = (
            self.theirs(perfect, False),
            self.mine(wire, self.render_only),
            self.theirs(perfect, True),
            self.mine(wire, self.ours),
        )
        return len(ids), [microseconds(run, runs) for run in work]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", nargs="+", type=Path)
    names = ("transformers", "tokenizers", "fastokens", "jinja2")
    print(f"Python {platform.python_version()}, " + ", ".join(f"{name} {version(name)}" for name in names))
    print()
    print("| checkpoint | size | render, theirs | render, ours | both, theirs | both, ours | faster |")
    print("|---|---|---|---|---|---|---|")
    for directory in parser.parse_args().checkpoints:
        contest = Contest(directory)
        for label, chars in SIZES.items():
            tokens, numbers = contest.size(chars, RUNS[label])
            shown = " | ".join(f"{number:,.0f}" for number in numbers)
            faster = f"{numbers[2] / numbers[3]:.0f}x"
            print(f"| {directory.name} | {label}, {tokens:,} tokens | {shown} | {faster} |", flush=True)


if __name__ == "__main__":
    main()
