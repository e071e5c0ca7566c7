"""Nothing that one party sends holds up another: hostile requests of every kind, and how long others wait meanwhile."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.api.wire import CHAT, USER
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


WORDS = {"authorization": " ".join(f"word{i:04d}" for i in range(6_000))}
ODD = {"authorization": '"/\\' * 19_000}

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
}


@pytest.mark.parametrize("name", ATTACKS)
async def test_no_request_holds_up_others(name: str) -> None:
    attack = ATTACKS[name]
    body = None if attack.body is None else json.dumps(attack.body).encode()
    async with client(deployment(engine(), **attack.settings)) as http:
        await http.post(CHAT, json={"messages": USER})
        longest, response = await gap_of(http.post(attack.path, content=body, headers=attack.headers))
        assert response.status_code < 500, response.text[:300]
        assert longest < TOLERATED
