"""What clients of agents' APIs need of a stream, as their mutation showed: each event, in order, under one identity.

A client breaks, or loses a text or a call without a word, when one of these is missing or out of place. The readers of
the tests are as strict as the strictest of them; here it is shown that they are, by leaving out and changing one thing
at a time, and that a stream adds up to the whole response wherever the model's text was cut.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.api import messages_kit, responses_kit
from tests.toy import TOKENIZER, client, deployment, engine, reply

Part = dict[str, Any]
Read = Callable[[list[Part]], dict[str, Any]]

SCHEMA = {"type": "object", "properties": {"room": {"type": "string"}}}
RESPONSES = {
    "input": "hi",
    "reasoning": {"summary": "auto"},
    "tools": [
        {"type": "function", "name": "list", "parameters": SCHEMA},
        {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "wait", "parameters": SCHEMA}]},
        {"type": "custom", "name": "patch"},
    ],
    "max_output_tokens": 1000,
}
MESSAGES = {
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 1000,
    "tools": [{"name": name, "input_schema": SCHEMA} for name in ("list", "agents__wait", "patch")],
}


def call(name: str, **arguments: Any) -> str:
    """Without a space, which could be left out of JSON unseen."""
    spelled = json.dumps({"name": name, "arguments": arguments}, separators=(",", ":"))
    return f"<tool_call>\n{spelled}\n</tool_call>"


EVERYTHING = (
    "<think>Hm. ü</think>b €" + call("list", room='a "b" \u2028') + "\n" + call("patch", input='x\n"é') +
    call("agents__wait")
)  # fmt: skip
TEXTS = {
    "everything": EVERYTHING,
    "text alone": "Good day.",
    "nothing": "",
    "a thought alone": "<think>Hm.</think>",
    "text behind a call": call("list") + "\nThat was it.",
    "a broken call": 'b<tool_call>\n{"name": "list", "arguments": {"room": "a\n</tool_call>',
    "a call that is not declared": "b" + call("unknown") + "c",
}


async def streamed(path: str, body: Part, text: str, *sizes: int) -> str:
    async with client(deployment(engine(reply(text, chunk_sizes=sizes or (1,))))) as http:
        response = await http.post(path, json={**body, "stream": True})
    assert response.status_code == 200, response.text
    return response.text


def collapsed(parts: list[Part]) -> list[str]:
    """The types of events, those that repeat once."""
    return [kind for kind, _ in itertools.groupby(part["type"] for part in parts)]


def of_part(name: str, text: str) -> list[str]:
    return [f"{name}.added", f"{text}.delta", f"{text}.done", f"{name}.done"]


def of_call(name: str) -> list[str]:
    return ["output_item.added", f"{name}.delta", f"{name}.done", "output_item.done"]


async def test_a_responses_stream_has_every_event_in_order() -> None:
    parts = responses_kit.events(await streamed("/v1/responses", {**RESPONSES, "reasoning": {}}, EVERYTHING))
    assert collapsed(parts) == [
        f"response.{name}"
        for name in (
            "created",
            "in_progress",
            *("output_item.added", *of_part("content_part", "reasoning_text"), "output_item.done"),
            *("output_item.added", *of_part("content_part", "output_text"), "output_item.done"),
            *of_call("function_call_arguments"),
            *of_call("custom_tool_call_input"),
            *of_call("function_call_arguments"),
            "completed",
        )
    ]


async def test_a_thought_is_shown_as_a_summary_beside_its_text() -> None:
    """Several clients show only the one, several keep only the other."""
    parts = responses_kit.events(await streamed("/v1/responses", RESPONSES, "<think>Hm.</think>b"))
    kinds = [part["type"].removeprefix("response.") for part in parts]
    for name in (
        *of_part("content_part", "reasoning_text"),
        *of_part("reasoning_summary_part", "reasoning_summary_text"),
    ):
        assert name in kinds[: kinds.index("output_item.done")]


async def test_a_messages_stream_has_every_event_in_order() -> None:
    parts = messages_kit.events(await streamed("/v1/messages", MESSAGES, EVERYTHING))
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert collapsed(parts) == ["message_start", *(block * 5), "message_delta", "message_stop"]


Mutation = tuple[str, list[Part]]


def left_out(parts: list[Part]) -> Iterator[Mutation]:
    for place, part in enumerate(parts):
        yield f"without {part['type']} at {place}", [*parts[:place], *parts[place + 1 :]]


def swapped(parts: list[Part]) -> Iterator[Mutation]:
    """Deltas of one text in the other order are another text: not so where they are equal."""
    for place, (one, other) in enumerate(itertools.pairwise(parts)):
        rest = ("sequence_number",)
        if {k: v for k, v in one.items() if k not in rest} != {k: v for k, v in other.items() if k not in rest}:
            yield f"{other['type']} before {one['type']} at {place}", [*parts[:place], other, one, *parts[place + 2 :]]


def renamed(parts: list[Part]) -> Iterator[Mutation]:
    """Each id, index and name of one event, and of what is in it."""
    for place, part in enumerate(parts):
        for path in paths(part):
            changed = copy.deepcopy(parts)
            inner: Any = changed[place]
            for step in path[:-1]:
                inner = inner[step]
            inner[path[-1]] = f"{inner[path[-1]]}x" if isinstance(inner[path[-1]], str) else inner[path[-1]] + 1
            yield f"another {'.'.join(map(str, path))} in {part['type']} at {place}", changed


IDENTITIES = ("id", "item_id", "call_id", "output_index", "content_index", "summary_index", "index", "namespace")


def paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in IDENTITIES and isinstance(inner, str | int):
                yield (*before, key)
            elif key not in ("tools", "delta"):
                yield from paths(inner, (*before, key))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from paths(inner, (*before, place))


def noticed(read: Read, parts: list[Part], whole: dict[str, Any]) -> bool:
    try:
        return read(parts) != whole
    except (AssertionError, IndexError, KeyError, ValueError, TypeError, AttributeError):
        return True


@pytest.mark.parametrize("mutate", [left_out, swapped, renamed], ids=lambda mutate: mutate.__name__)
@pytest.mark.parametrize("api", ["responses", "messages"])
async def test_a_client_that_needs_an_event_would_notice(
    api: str, mutate: Callable[[list[Part]], Iterator[Mutation]]
) -> None:
    kit: Any = responses_kit if api == "responses" else messages_kit
    body = {**RESPONSES, "reasoning": {}} if api == "responses" else MESSAGES
    parts = kit.events(await streamed(f"/v1/{api}", body, EVERYTHING))
    whole = kit.accumulated(parts)
    missed = [how for how, changed in mutate(parts) if not noticed(kit.accumulated, changed, whole)]
    assert not missed, "\n".join(missed)


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("api", ["responses", "messages"])
async def test_a_stream_adds_up_to_the_whole_response_wherever_the_text_is_cut(api: str, name: str) -> None:
    kit: Any = responses_kit if api == "responses" else messages_kit
    body = RESPONSES if api == "responses" else MESSAGES
    tokens = len(TOKENIZER.encode(TEXTS[name])) + 1
    cuts = [(size,) for size in (1, 2, 3, 7)] + [(cut, tokens) for cut in range(1, tokens)]
    replies = [reply(TEXTS[name], chunk_sizes=sizes) for sizes in cuts]
    async with client(deployment(engine(*replies, reply(TEXTS[name])))) as http:
        found = [
            kit.accumulated(kit.events((await http.post(f"/v1/{api}", json={**body, "stream": True})).text))
            for _ in cuts
        ]
        whole = (await http.post(f"/v1/{api}", json=body)).json()
    for sizes, one in zip(cuts, found, strict=True):
        assert nameless(one) == nameless(whole), sizes


def nameless(response: dict[str, Any]) -> dict[str, Any]:
    """What two replies of the same text have in common."""
    own = ("id", "call_id", "created_at", "completed_at")
    items = "output" if "output" in response else "content"
    inner = [{k: v for k, v in item.items() if k not in own} for item in response[items]]
    return {k: v for k, v in response.items() if k not in own} | {items: inner}
