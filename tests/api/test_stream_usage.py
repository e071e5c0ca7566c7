"""Usage in streams."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.wire import CHAT, COMPLETIONS, chunks, post
from tests.toy import client, deployment, engine, reply


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("options", "shown"),
    [(None, False), ({}, False), ({"include_usage": False}, False), ({"include_usage": True}, True)],
)
async def test_a_stream_has_usage_only_when_asked(path: str, options: Any, shown: bool) -> None:
    async with client(deployment(engine(reply("abc")))) as http:
        whole = (await post(http, path)).json()
        parts = chunks((await post(http, path, stream=True, stream_options=options)).text)
    assert [part for part in parts if "usage" in part] == ([parts[-1]] if shown else [])
    if shown:
        assert parts[-1]["choices"] == []
        assert parts[-1]["usage"] == whole["usage"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_running_usage_is_cumulative_and_in_every_chunk(path: str) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    async with client(deployment(engine(reply("abc"), reply("abcdef")))) as http:
        parts = chunks((await post(http, path, stream=True, stream_options=options, n=2)).text)
    counts = [part["usage"]["completion_tokens"] for part in parts]
    assert counts == sorted(counts)
    assert counts[-1] == 4 + 7
    assert all(
        p["usage"]["total_tokens"] == p["usage"]["prompt_tokens"] + p["usage"]["completion_tokens"] for p in parts
    )


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_stream_options_without_a_stream_is_a_400_unless_ignored(path: str) -> None:
    async with client(deployment(engine())) as http:
        response = await post(http, path, stream_options={"include_usage": True})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "stream_options"
    async with client(deployment(engine(), stream_options_without_stream="ignore")) as http:
        assert (await post(http, path, stream_options={"include_usage": True})).status_code == 200


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_cached_tokens_are_shown_when_the_operator_wants_them(path: str) -> None:
    scripted = [reply("abc", cached_tokens=2)]
    async with client(deployment(engine(*scripted))) as http:
        assert "prompt_tokens_details" not in (await post(http, path)).json()["usage"]
    async with client(deployment(engine(*scripted), enable_cache_report=True)) as http:
        assert (await post(http, path)).json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
        parts = chunks((await post(http, path, stream=True, stream_options={"include_usage": True})).text)
        assert parts[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
