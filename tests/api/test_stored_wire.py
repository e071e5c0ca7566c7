"""Conversations that the server keeps: what a response goes on from, who may read it, and replies in the background."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from paraserve.api import background, shelf
from paraserve.api.encoders.responses import ResponsesFold
from paraserve.deployment import Deployment
from paraserve.engines.base import EngineError
from paraserve.observability.logs import FIELDS
from tests.api.responses_kit import accumulated, events
from tests.api.test_responses_wire import HI, LIST, SHOWS_THOUGHTS, call, post, result
from tests.api.wire import CHAT
from tests.observability.scrape import scrape
from tests.toy import client, deployment, engine, reply
from tests.waiting import until

RESPONSES = "/v1/responses"
CONVERSATIONS = "/v1/conversations"
KEYS = {"api_key": ("first", "second")}


async def ended(served: Deployment) -> None:
    """When nothing runs in the background."""
    await until(lambda: not served.background)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_goes_on_from_another_as_a_client_that_sends_all(stream: bool) -> None:
    scripted = engine(reply("<think>Hm.</think>a" + call("list")), reply("b"), reply("b"))
    async with client(deployment(scripted, template=SHOWS_THOUGHTS)) as http:
        fields: dict[str, Any] = {"tools": [LIST], "stream": stream}
        first = await post(http, **fields, instructions="Be kind.")
        body = accumulated(events(first.text)) if stream else first.json()
        assert body["store"] is True
        output = result(body["output"][-1]["call_id"])
        counted = await post(
            http, f"{RESPONSES}/input_tokens", tools=[LIST], previous_response_id=body["id"], input=[output]
        )
        second = await post(http, tools=[LIST], previous_response_id=body["id"], input=[output])
        await post(http, tools=[LIST], store=False, input=[HI, *body["output"], output])
    _, kept, sent = scripted.requests
    assert kept.token_ids == sent.token_ids, "instructions do not carry over, all else does"
    assert counted.json()["input_tokens"] == len(kept.token_ids)
    assert second.json()["previous_response_id"] == body["id"]


async def test_a_stored_response_is_what_was_answered_until_it_is_deleted() -> None:
    async with client(deployment(engine())) as http:
        body = (await post(http, input="hi")).json()
        path = f"{RESPONSES}/{body['id']}"
        assert (await http.get(path)).json() == body
        assert (await http.delete(path)).json() == {"id": body["id"], "object": "response", "deleted": True}
        for gone in (await http.get(path), await http.delete(path), await http.get(f"{path}/input_items")):
            assert (gone.status_code, gone.json()["error"]["code"]) == (404, "response_not_found")
        refused = await post(http, previous_response_id=body["id"])
    assert (refused.status_code, refused.json()["error"]["param"]) == (404, "previous_response_id")


async def test_input_items_are_all_that_a_response_answers() -> None:
    async with client(deployment(engine())) as http:
        first = (await post(http, input="one")).json()
        second = (await post(http, input=[HI, HI], previous_response_id=first["id"])).json()
        path = f"{RESPONSES}/{second['id']}/input_items"
        items = (await http.get(path, params={"order": "asc"})).json()
        newest = (await http.get(path, params={"limit": 3})).json()
        rest = (await http.get(path, params={"after": newest["last_id"]})).json()
        wrong = await http.get(path, params={"limit": "many"})
    assert [item["role"] for item in items["data"]] == ["user", "assistant", "user", "user"]
    assert items["data"][0]["content"] == [{"type": "input_text", "text": "one"}]
    assert len({item["id"] for item in items["data"]}) == 4
    assert (newest["has_more"], rest["has_more"]) == (True, False)
    assert [*newest["data"], *rest["data"]] == items["data"][::-1]
    assert wrong.status_code == 400


async def test_references_to_stored_items_are_the_items() -> None:
    scripted = engine(reply("<think>Hm.</think>a" + call("list")), reply("b"), reply("b"))
    async with client(deployment(scripted, template=SHOWS_THOUGHTS)) as http:
        thought, said, called = (await post(http, tools=[LIST])).json()["output"]
        references = [{"type": "item_reference", "id": item["id"]} for item in (thought, said)]
        answer = [called, result(called["call_id"])]
        response = await post(http, input=[HI, *references, *answer])
        await post(http, store=False, input=[HI, thought, said, *answer])
    _, kept, sent = scripted.requests
    assert kept.token_ids == sent.token_ids
    assert "skipped" not in response.headers.get("x-paraserve-normalizations", "")


async def test_a_conversation_grows_by_its_responses() -> None:
    scripted = engine(reply("a"), reply("b"))
    async with client(deployment(scripted)) as http:
        made = (await http.post(CONVERSATIONS, json={"items": [HI], "metadata": {"a": "b"}})).json()
        path = f"{CONVERSATIONS}/{made['id']}"
        first = (await post(http, conversation=made["id"], input="one")).json()
        await post(http, conversation={"id": made["id"]}, input="two")
        talk = [HI, {"role": "user", "content": "one"}, {"role": "assistant", "content": "a"}]
        await http.post(CHAT, json={"messages": [*talk, {"role": "user", "content": "two"}]})
        items = (await http.get(f"{path}/items", params={"order": "asc"})).json()["data"]
        assert (await http.get(path)).json() == made
        assert (await http.delete(path)).json()["deleted"] is True
        gone = await post(http, conversation=made["id"])
    assert first["conversation"] == {"id": made["id"]}
    assert made["metadata"] == {"a": "b"}
    assert [item["role"] for item in items] == ["user", "user", "assistant", "user", "assistant"]
    _, kept, chats = scripted.requests
    assert kept.token_ids == chats.token_ids
    assert (gone.status_code, gone.json()["error"]["param"]) == (404, "conversation")


async def test_what_one_key_stored_another_cannot_find() -> None:
    async with client(deployment(engine(), **KEYS)) as http:
        http.headers["authorization"] = "Bearer first"
        body = (await post(http)).json()
        talk = (await http.post(CONVERSATIONS, json={})).json()
        path = f"{RESPONSES}/{body['id']}"
        http.headers["authorization"] = "Bearer second"
        refused = [
            await http.get(path), await http.delete(path), await http.post(f"{path}/cancel"),
            await http.get(f"{path}/input_items"), await post(http, previous_response_id=body["id"]),
            await post(http, conversation=talk["id"]), await http.get(f"{CONVERSATIONS}/{talk['id']}"),
        ]  # fmt: skip
        referred = await post(http, input=[{"type": "item_reference", "id": body["output"][0]["id"]}, HI])
        http.headers["authorization"] = "Bearer first"
        assert (await http.get(path)).status_code == 200
    assert {response.status_code for response in refused} == {404}
    assert referred.headers["x-paraserve-normalizations"] == "item_references_skipped"


async def test_nothing_is_kept_of_a_response_that_is_not_to_be_stored(tmp_path: Path) -> None:
    file = tmp_path / "r.db"
    async with client(deployment(engine(), response_store=str(file))) as http:
        body = (await post(http, store=False)).json()
        assert not file.exists()
        assert (await http.get(f"{RESPONSES}/{body['id']}")).status_code == 404
    assert body["store"] is False


async def test_a_store_that_is_away_fails_what_needs_it_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    async with client(deployment(engine(), response_store=str(tmp_path / "file" / "r.db"))) as http:
        plain = await post(http)
        streamed = accumulated(events((await post(http, stream=True)).text))
        assert [plain.status_code, plain.json()["store"], streamed["store"]] == [200, False, False]
        assert (await post(http, store=False)).status_code == 200
        asked = {"previous_response_id": "resp_1"}
        for needs in (await post(http, store=True), await post(http, **asked), await http.get(f"{RESPONSES}/resp_1")):
            assert (needs.status_code, needs.json()["error"]["code"]) == (503, "store_unavailable")
            assert "retry-after" in needs.headers
        failed = accumulated(events((await post(http, stream=True, store=True)).text))
    assert failed["status"] == "failed"


async def test_without_a_store_what_needs_one_is_refused() -> None:
    async with client(deployment(engine(), response_store="off")) as http:
        assert (await post(http)).json()["store"] is False
        assert (await http.get(f"{RESPONSES}/resp_1")).status_code == 404
        assert (await http.post(CONVERSATIONS, json={})).status_code == 400
        for name, value in [("previous_response_id", "r"), ("conversation", "c"), ("background", True)]:
            refused = await post(http, **{name: value})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, name)


async def test_a_reply_in_the_background_is_polled_to_its_end() -> None:
    served = deployment(engine(reply("Hi there.")))
    async with client(served) as http:
        queued = (await post(http, background=True)).json()
        assert (queued["status"], queued["background"], queued["output"]) == ("queued", True, [])
        path = f"{RESPONSES}/{queued['id']}"
        await ended(served)
        body = (await http.get(path)).json()
        after = await post(http, previous_response_id=queued["id"])
    assert after.status_code == 200
    assert body["status"] == "completed"
    assert body["output"][0]["content"][0]["text"] == "Hi there."


async def test_a_reply_in_the_background_is_cancelled_at_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "BEAT_SECONDS", 0.01)
    scripted = engine(reply("Hi there.", hang_after=2))
    served = deployment(scripted)
    async with client(served) as http:
        id = (await post(http, background=True)).json()["id"]
        path = f"{RESPONSES}/{id}"
        running = await post(http, previous_response_id=id)
        assert (running.status_code, running.json()["error"]["param"]) == (400, "previous_response_id")
        await until(lambda: scripted.running)
        assert (await http.post(f"{path}/cancel")).json()["status"] == "cancelled"
        await ended(served)
        assert not scripted.running
        assert (await http.get(path)).json()["status"] == "cancelled"
        assert (await http.post(f"{path}/cancel")).json()["status"] == "cancelled"


async def test_a_reply_in_the_background_is_counted_when_it_has_ended_and_has_a_line_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its request ended before: that is counted once, and has made nothing."""
    served = deployment(engine(reply("<think>ab</think>c", cached_tokens=2)))
    where = {"endpoint": RESPONSES, "model": "toy"}
    with caplog.at_level("INFO", "paraserve.requests"):
        async with client(served) as http:
            path = f"{RESPONSES}/{(await post(http, background=True)).json()['id']}"
            await ended(served)
            usage = (await http.get(path)).json()["usage"]
            seen = await scrape(http)
    assert seen.value("requests_total", **where) == 1
    assert seen.value("completion_tokens_total", **where) == usage["output_tokens"] > 0
    assert seen.value("prompt_tokens_total", **where) == usage["input_tokens"]
    assert seen.value("cached_prompt_tokens_total", **where) == 2
    assert seen.value("request_duration_seconds_count", **where) == 1
    assert seen.value("requests_in_flight") == 1, "the scrape itself"
    lines = [getattr(line, FIELDS) for line in caplog.records]
    told = [line for line in lines if line["endpoint"] == RESPONSES]
    assert [line.get("completion_tokens") for line in told] == [None, usage["output_tokens"]]


async def test_a_bug_in_the_background_is_logged_and_the_response_has_failed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: ResponsesFold, event: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(ResponsesFold, "take", broken)
    served = deployment(engine())
    async with client(served) as http:
        path = f"{RESPONSES}/{(await post(http, background=True)).json()['id']}"
        await ended(served)
        body = (await http.get(path)).json()
        seen = await scrape(http)
    assert (body["status"], body["error"]["code"]) == ("failed", "server_error")
    assert seen.value("request_errors_total", code="internal_error") == 1
    assert any(line.exc_info and "a bug" in str(line.exc_info[1]) for line in caplog.records)


@pytest.mark.parametrize("how", ["engine", "stop"])
async def test_a_reply_in_the_background_that_fails_says_so(how: str) -> None:
    gone = EngineError(502, "engine_disconnected", "The engine is gone.")  # type: ignore[arg-type]
    broken = reply("Hi", error=gone, error_after=1) if how == "engine" else reply("Hi", hang_after=1)
    scripted = engine(broken)
    served = deployment(scripted)
    async with client(served) as http:
        path = f"{RESPONSES}/{(await post(http, background=True)).json()['id']}"
        if how == "stop":
            await until(lambda: scripted.running)
            for task in served.background:
                task.cancel()
        await ended(served)
        body = (await http.get(path)).json()
    assert (body["status"], body["error"]["code"]) == ("failed", "server_error")


async def test_a_reply_in_the_background_whose_server_has_gone_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    served = deployment(engine(reply("Hi", hang_after=1)))
    async with client(served) as http:
        path = f"{RESPONSES}/{(await post(http, background=True)).json()['id']}"
        monkeypatch.setattr(shelf, "LOST_SECONDS", -1.0)
        body = (await http.get(path)).json()
    assert (body["status"], body["error"]["code"]) == ("failed", "server_error")
    await served.close()


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("stream", {"background": True, "stream": True}),
        ("background", {"background": True, "store": False}),
        ("conversation", {"conversation": "c", "previous_response_id": "r"}),
        ("conversation", {"conversation": 3}),
    ],
)
async def test_what_cannot_be_together_is_refused(param: str, fields: dict[str, Any]) -> None:
    async with client(deployment(engine())) as http:
        response: httpx.Response = await post(http, **fields)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def test_a_stored_response_is_not_streamed_again() -> None:
    async with client(deployment(engine())) as http:
        path = f"{RESPONSES}/{(await post(http)).json()['id']}"
        for asked in ({"stream": "true"}, {"stream": "true", "starting_after": "3"}):
            response = await http.get(path, params=asked)
            assert (response.status_code, response.json()["error"]["param"]) == (400, "stream")
        assert (await http.get(path, params={"stream": "false"})).status_code == 200
