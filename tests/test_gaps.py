"""Nothing that one party sends holds up another: hostile requests of every kind, and how long others wait meanwhile."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.api.wire import CHAT, COMPLETIONS, USER
from tests.gap import TOLERATED, gap_of
from tests.toy import client, deployment, engine

pytestmark = pytest.mark.heavy


@dataclass(frozen=True)
class Attack:
    """A request. ``settings`` are the server's."""

    body: Any = None
    path: str = CHAT
    headers: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    packed: bool = False


WORDS = {"authorization": " ".join(f"word{i:04d}" for i in range(6_000))}
ODD = {"authorization": '"/\\' * 19_000}

TOOL = {"type": "function"}
ESCAPES = "\n" * 2_000_000 + "\ud800"

ATTACKS: dict[str, Attack] = {
    "many words of a credential, a long path": Attack(path="/x" * 20_000, headers=WORDS),
    "an odd credential, a long path": Attack(path="/x" * 20_000, headers=ODD),
    "many words, a long model": Attack({"messages": USER, "model": "word" * 15_000}, headers=WORDS),
    "an odd credential, a long role": Attack({"messages": [{"role": "/" * 5_000_000}]}, headers=ODD),
    "an odd credential, a body in the log": Attack(
        {"messages": USER, "user": "aaaa/" * 500_000}, headers=ODD, settings={"log_requests": "bodies"}
    ),
    "many fields in the log": Attack(
        {"messages": USER} | {f"k{i}": 1 for i in range(100_000)}, headers=ODD, settings={"log_requests": "parameters"}
    ),
    "many messages": Attack({"messages": USER * 20_000}),
    "many parts": Attack({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 50_000}]}),
    "many tools": Attack({"messages": USER, "tools": [TOOL | {"function": {"name": f"f{i}"}} for i in range(5_000)]}),
    "a tool's long text": Attack(
        {"messages": USER, "tools": [TOOL | {"function": {"name": "f", "description": "x" * 5_000_000}}]}
    ),
    "documents": Attack({"messages": USER, "documents": [{"text": "x" * 100}] * 20_000}),
    "a variable of the template": Attack({"messages": USER, "chat_template_kwargs": {"x": [[1]] * 200_000}}),
    "half a character among millions of escapes": Attack({"messages": [{"role": "user", "content": ESCAPES}]}),
    "much in few packed bytes": Attack({"messages": [{"role": "user", "content": "x" * 30_000_000}]}, packed=True),
    "many objects in few packed bytes": Attack({"messages": USER, "x": [[]] * 500_000}, packed=True),
    "a prompt that cannot fit": Attack({"prompt": "x" * 10_000_000}, COMPLETIONS),
    "many prompts": Attack({"prompt": ["word " * 300] * 1024, "max_tokens": 1}, COMPLETIONS),
    "many choices": Attack({"prompt": ["x"] * 8, "n": 128, "max_tokens": 1}, COMPLETIONS),
    "many ids": Attack({"prompt": [1] * 500_000}, COMPLETIONS),
    "a text to tokenize": Attack({"prompt": "x" * 30_000, "return_token_strs": True}, "/tokenize"),
    "ids to decode": Attack({"tokens": [65] * 500_000}, "/detokenize"),
    "a count of tokens": Attack({"messages": USER * 20_000}, "/v1/messages/count_tokens"),
}


@pytest.mark.parametrize("name", ATTACKS)
async def test_no_request_holds_up_others(name: str) -> None:
    attack = ATTACKS[name]
    body = None if attack.body is None else json.dumps(attack.body).encode()
    headers = dict(attack.headers)
    if attack.packed and body is not None:
        body, headers["content-encoding"] = gzip.compress(body, 1), "gzip"
    async with client(deployment(engine(), **attack.settings)) as http:
        await http.post(CHAT, json={"messages": USER})
        longest, response = await gap_of(http.post(attack.path, content=body, headers=headers))
        assert response.status_code < 500, response.text[:300]
        assert longest < TOLERATED
