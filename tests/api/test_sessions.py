"""Sessions of five turns as agents have them: the prompts of one are the same tokens over every API, whatever
a client changes beside it from request to request, and each turn's prompt with its reply is how the next one begins.

What is sent is written as recorded clients write it (Codex and a client of the Messages API), told again here; the
history is made of what the server streamed, never of what the model is known to have said.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.api import messages_kit
from tests.api.responses_kit import accumulated, events
from tests.api.wire import CHAT, chunks, folded
from tests.toy import END, TOKENIZER, client, deployment, engine, reply

Item = dict[str, Any]
GOLDEN = Path(__file__).parent / "golden"

RULES = ("You are a coding agent.", "Files may be written in the project.")
ASKED = ("Fix the sum in add.py — it is off by one.", "Now write a test.")
COMMAND = {"type": "object", "properties": {"cmd": {"type": "string", "maxLength": 60}}, "required": ["cmd"]}
INPUT = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
FUNCTIONS: list[Item] = [
    {"name": "exec_command", "description": "Runs a command.", "parameters": COMMAND, "strict": False},
    {"name": "agents__wait", "parameters": COMMAND, "strict": False},
    {"name": "apply_patch", "description": "Edits files.", "parameters": INPUT},
]
PATCH = '*** Begin Patch\n*** Update File: add.py\n-    return a + b + 1\n+    return a + b  # "ü"\n*** End Patch\n'


@dataclass(frozen=True)
class Said:
    """One reply of the model: ``calls`` are names with arguments, and what each gave."""

    thought: str
    text: str
    calls: tuple[tuple[str, dict[str, str], str], ...] = ()


REPLIES = (
    Said("I have to see it.", "I will look.", (("exec_command", {"cmd": "cat add.py"}, "return a + b + 1\n"),)),
    Said(
        "Off by one.\n\nWho else reads it?",
        "",
        (("exec_command", {"cmd": "grep -r 'add('"}, "one\ntwo é"), ("agents__wait", {"cmd": "all"}, "done")),
    ),
    Said("Now the patch.", "It is the sum.", (("apply_patch", {"input": PATCH}, "Success."),)),
    Said("That was it.", "Done: the sum is right."),
    Said("A test, then.", "", (("exec_command", {"cmd": "echo 'assert add(1, 2) == 3' > test_add.py"}, ""),)),
)


# What a model of a family writes, and a template that repeats it as it was written.

HERMES = '\n<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'
KIMI = "<|tool_call_begin|>functions.%s:%d<|tool_call_argument_begin|>%s<|tool_call_end|>"


def spelled(form: str, said: Said, before: int) -> str:
    """Args: before: how many calls the conversation has before this reply."""
    names = [(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments, _ in said.calls]
    if form == "kimi_k2":
        calls = "".join(KIMI % (name, before + place, text) for place, (name, text) in enumerate(names))
        calls = f"<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>" if names else ""
    elif form == "glm47":
        pairs = [
            "".join(f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>" for key, value in arguments.items())
            for _, arguments, _ in said.calls
        ]
        calls = "".join(f"<tool_call>{name}{text}</tool_call>" for (name, _), text in zip(names, pairs, strict=True))
    else:
        calls = "".join(HERMES % named for named in names)
    return f"<think>{said.thought}</think>{said.text}{calls}"


CALLS = {
    "hermes": """\
{%- for call in m.tool_calls or [] %}
{{ '\\n<tool_call>\\n{"name": "' ~ call.function.name ~ '", "arguments": ' ~ (call.function.arguments | tojson) ~
   '}\\n</tool_call>' }}
{%- endfor -%}""",
    "kimi_k2": """\
{%- if m.tool_calls %}<|tool_calls_section_begin|>
{%- for call in m.tool_calls -%}
<|tool_call_begin|>{{ call.id }}<|tool_call_argument_begin|>{{ call.function.arguments | tojson }}<|tool_call_end|>
{%- endfor %}<|tool_calls_section_end|>{% endif -%}""",
    "glm47": """\
{%- for call in m.tool_calls or [] %}<tool_call>{{ call.function.name }}
{%- for key, value in call.function.arguments.items() -%}
<arg_key>{{ key }}</arg_key><arg_value>{{ value if value is string else value | tojson }}</arg_value>
{%- endfor %}</tool_call>{% endfor -%}""",
}
TEMPLATE = """\
{%- if tools %}[tools {{ tools | tojson }}]{% endif -%}
{%- for m in messages -%}
<|{{ 'assistant' if m.role == 'assistant' else 'user' }}|>
{%- if m.role == 'tool' %}[result]{% elif m.role in ('system', 'developer') %}[rule]{% endif -%}
{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif -%}
{{- m.content or '' }}{CALLS}
{%- if m.role == 'assistant' %}<|end|>{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif -%}
"""


# Who speaks with the server.


@dataclass
class Client(ABC):
    """One session. What it sends beside the conversation differs from request to request, and from the session of
    another ``number``."""

    path: str = field(init=False)
    number: int = 0
    turn: int = 0
    history: list[Item] = field(default_factory=list)

    @abstractmethod
    def body(self) -> Item:
        """The request that is next."""

    @abstractmethod
    def ask(self, text: str) -> None:
        """The user's next word."""

    @abstractmethod
    def read(self, stream: str) -> list[tuple[str, str]]:
        """Take a reply into the history. Returns its calls: id and name."""

    @abstractmethod
    def answer(self, call_id: str, name: str, result: str) -> None:
        """Give the result of a call back."""


@dataclass
class Chat(Client):
    path = CHAT

    def __post_init__(self) -> None:
        self.history = [{"role": "system", "content": rule} for rule in RULES]

    def body(self) -> Item:
        tools = [{"type": "function", "function": function} for function in FUNCTIONS]
        return {"messages": self.history, "tools": tools, "user": f"user-{self.number}"}

    def ask(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    def read(self, stream: str) -> list[tuple[str, str]]:
        got = folded(chunks(stream))[0]
        calls = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for call in got["tool_calls"]
        ]
        message = {"role": "assistant", "content": got["content"], "reasoning_content": got["reasoning_content"]}
        self.history.append({**message, "tool_calls": calls} if calls else message)
        return [(call["id"], call["name"]) for call in got["tool_calls"]]

    def answer(self, call_id: str, name: str, result: str) -> None:
        self.history.append({"role": "tool", "tool_call_id": call_id, "content": result})


@dataclass
class Codex(Client):
    """Stateless: all items again each time, with ids of its own on what it said; a custom tool, a namespace and a
    hosted tool in its list; the model's messages without id and status."""

    path = "/v1/responses"
    role = "developer"

    def __post_init__(self) -> None:
        self.history = [self._message(self.role, rule) for rule in RULES]

    def _message(self, role: str, *texts: str) -> Item:
        parts = [{"type": "input_text", "text": text} for text in texts]
        return {"type": "message", "id": f"msg_{self.number}{len(self.history)}", "role": role, "content": parts}

    def body(self) -> Item:
        command, wait, patch = FUNCTIONS
        agents = {"type": "function", **wait, "name": "wait"}
        grammar = {"type": "text"}
        custom = {"type": "custom", "name": patch["name"], "description": patch["description"], "format": grammar}
        ids = {"turn_id": f"turn-{self.number}-{self.turn}", "x-codex-turn-metadata": "{}"}
        return {
            "input": self.history,
            "tools": [
                {"type": "function", **command},
                {"type": "namespace", "name": "agents", "description": "Other agents.", "tools": [agents]},
                custom,
                {"type": "web_search", "external_web_access": True},
            ],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "reasoning": {"summary": "auto"},
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": f"session-{self.number}",
            "client_metadata": ids,
        }

    def ask(self, text: str) -> None:
        self.history.append(self._message("user", text))

    def read(self, stream: str) -> list[tuple[str, str]]:
        calls = []
        for item in accumulated(events(stream))["output"]:
            if item["type"] == "reasoning":
                self.history.append({**item, "encrypted_content": None, "status": None})
            elif item["type"] == "message":
                said = [{"type": "output_text", "text": part["text"]} for part in item["content"]]
                self.history.append({"type": "message", "role": "assistant", "content": said})
            else:
                self.history.append(item)
                calls.append((item["call_id"], item["name"]))
        return calls

    def answer(self, call_id: str, name: str, result: str) -> None:
        custom = "custom_tool_call" if name == "apply_patch" else "function_call"
        id = f"fco_{self.number}{len(self.history)}"
        self.history.append({"type": f"{custom}_output", "id": id, "call_id": call_id, "output": result})


@dataclass
class Opencode(Codex):
    """What is left of a thought is what the server sealed, with its summary; no ids at all."""

    role = "system"

    def read(self, stream: str) -> list[tuple[str, str]]:
        before = len(self.history)
        calls = super().read(stream)
        for place, sent in enumerate(accumulated(events(stream))["output"], before):
            if sent["type"] == "reasoning":
                self.history[place] = {key: sent[key] for key in ("type", "summary", "encrypted_content")}
            else:
                own = ("id", "status")
                self.history[place] = {k: v for k, v in self.history[place].items() if k not in own}
        return calls


@dataclass
class Claude(Client):
    """System blocks of which one changes with each request; the mark of the cache moves on with the last block;
    thoughts with their signature; results beside each other in one user message."""

    path = "/v1/messages"

    def body(self) -> Item:
        billing = {"type": "text", "text": f"x-anthropic-billing-header: cch={self.number}{self.turn:04x};"}
        rules = [{"role": "system", "content": rule} for rule in RULES[1:]]
        return {
            "max_tokens": 8000,
            "system": [billing, {"type": "text", "text": RULES[0], "cache_control": {"type": "ephemeral"}}],
            "messages": [*rules, *self.history[:-1], self._marked(self.history[-1])],
            "tools": [
                {"input_schema" if key == "parameters" else key: value for key, value in function.items()}
                for function in FUNCTIONS
            ],
            "metadata": {"user_id": f"session-{self.number}"},
        }

    def _marked(self, message: Item) -> Item:
        *blocks, last = message["content"]
        return {**message, "content": [*blocks, {**last, "cache_control": {"type": "ephemeral"}}]}

    def ask(self, text: str) -> None:
        self._user({"type": "text", "text": text})

    def _user(self, block: Item) -> None:
        if self.history and self.history[-1]["role"] == "user":
            self.history[-1]["content"].append(block)
        else:
            self.history.append({"role": "user", "content": [block]})

    def read(self, stream: str) -> list[tuple[str, str]]:
        blocks = messages_kit.accumulated(messages_kit.events(stream))["content"]
        self.history.append({"role": "assistant", "content": blocks})
        return [(block["id"], block["name"]) for block in blocks if block["type"] == "tool_use"]

    def answer(self, call_id: str, name: str, result: str) -> None:
        self._user({"type": "tool_result", "tool_use_id": call_id, "content": result})


CLIENTS: dict[str, type[Client]] = {"chat": Chat, "codex": Codex, "opencode": Opencode, "claude": Claude}


async def played(form: str, kind: type[Client], number: int = 0, *, sizes: tuple[int, ...] = (1,)) -> list[list[int]]:
    """The prompts of a session: five turns of the model, the user speaks first and behind the fourth."""
    made = [sum(len(said.calls) for said in REPLIES[:place]) for place in range(len(REPLIES))]
    replies = [
        reply(spelled(form, said, before), chunk_sizes=sizes) for said, before in zip(REPLIES, made, strict=True)
    ]
    scripted = engine(*replies, context_length=20_000)
    served = {"tool_call_parser": form, "reasoning_parser": "qwen3" if form == "hermes" else form}
    template = TEMPLATE.replace("{CALLS}", CALLS[form])
    session = kind(number=number)
    asked = iter(ASKED)
    async with client(deployment(scripted, template=template, **served)) as http:
        for said in REPLIES:
            if session.turn == 0 or not REPLIES[session.turn - 1].calls:
                session.ask(next(asked))
            response = await http.post(session.path, json={**session.body(), "stream": True})
            assert response.status_code == 200, response.text
            calls = session.read(response.text)
            assert len(calls) == len(said.calls)
            for (call_id, name), (_, _, result) in zip(calls, said.calls, strict=True):
                session.answer(call_id, name, result)
            session.turn += 1
    return [list(request.token_ids) for request in scripted.requests]


@pytest.mark.parametrize("form", CALLS)
@pytest.mark.parametrize("name", CLIENTS)
async def test_each_turn_with_its_reply_is_how_the_next_one_begins(name: str, form: str) -> None:
    prompts = await played(form, CLIENTS[name])
    made = 0
    for said, before, after in zip(REPLIES, prompts, prompts[1:], strict=False):
        whole = [*before, *TOKENIZER.encode(spelled(form, said, made)), END]
        assert after[: len(whole)] == whole
        made += len(said.calls)


@pytest.mark.parametrize("form", CALLS)
async def test_the_same_session_has_the_same_tokens_over_every_api(form: str) -> None:
    chat = await played(form, Chat)
    for name in ("codex", "opencode", "claude"):
        assert await played(form, CLIENTS[name]) == chat, name


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_session_is_the_same_prompts_again_however_it_was_cut_and_whatever_its_client_sends_beside(
    name: str,
) -> None:
    """Ids, times, names of sessions and marks of the cache change with each request."""
    first = await played("kimi_k2", CLIENTS[name])
    assert await played("kimi_k2", CLIENTS[name], 1, sizes=(5, 1)) == first


@pytest.mark.parametrize("form", CALLS)
async def test_a_session_is_replayed_to_the_prompt_that_was_recorded(form: str) -> None:
    """The last prompt, in which all that was said stands; ``PARASERVE_WRITE_GOLDEN=1`` writes it anew."""
    *_, last = await played(form, Codex)
    path = GOLDEN / f"session-{form}.txt"
    if os.environ.get("PARASERVE_WRITE_GOLDEN"):
        path.write_text(TOKENIZER.decode(last) + "\n")
    assert TOKENIZER.encode(path.read_text().removesuffix("\n")) == last
