"""Five turns of an agent's loop on the real model, over each API: what was read in a turn is not read again later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.api.messages_kit import events as message_events
from tests.api.responses_kit import events as response_events
from tests.api.test_sessions import ASKED, Chat, Claude, Client, Codex
from tests.api.wire import chunks
from tests.e2e.conftest import END_SECONDS, Server, default_server

Counts = tuple[int, int]


def of_chat(stream: str) -> Counts:
    usage = chunks(stream)[-1]["usage"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def of_responses(stream: str) -> Counts:
    usage = response_events(stream)[-1]["response"]["usage"]
    return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]


def of_messages(stream: str) -> Counts:
    usage = message_events(stream)[-2]["usage"]
    return usage["input_tokens"] + usage["cache_read_input_tokens"], usage["cache_read_input_tokens"]


APIS: dict[str, tuple[type[Client], Any, Any]] = {
    "chat": (
        Chat,
        of_chat,
        {
            "tool_choice": {"type": "function", "function": {"name": "exec_command"}},
            "stream_options": {"include_usage": True},
        },
    ),
    "responses": (Codex, of_responses, {"tool_choice": {"type": "function", "name": "exec_command"}}),
    "messages": (Claude, of_messages, {"tool_choice": {"type": "tool", "name": "exec_command"}}),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One of its own: a prompt that continues another's cached beginning is read in other batches, which is enough to
    change the small model's greedy words; and other tests know them."""
    yield from default_server()


@pytest.mark.parametrize("api", APIS)
def test_each_turn_of_a_loop_is_read_from_the_cache_in_the_next(server: Server, api: str) -> None:
    """The call of each turn is forced by name, and made once."""
    kind, counts, fields = APIS[api]
    session = kind()
    session.ask(ASKED[0])
    read = 0
    with httpx.Client(base_url=server.url, timeout=END_SECONDS) as http:
        for turn in range(5):
            session.turn = turn
            body = {**session.body(), **fields, "stream": True, "temperature": 0}
            response = http.post(session.path, json=body)
            assert response.status_code == 200, response.text
            prompt, cached = counts(response.text)
            assert cached >= read
            read = prompt
            ((call_id, name),) = session.read(response.text)
            session.answer(call_id, name, f"{turn} files.")
