"""The playground in a real browser: against the real model, and against scripted replies for what that never says."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Page, ViewportSize, async_playwright, expect

from paraserve.api.app import create_app
from paraserve.engines.base import EngineError
from tests.e2e.conftest import MODEL, Server
from tests.fakes.serving import serving
from tests.toy import deployment, engine, reply
from tests.waiting import PATIENCE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
expect.set_options(timeout=1000 * PATIENCE)
CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium")


@asynccontextmanager
async def browsing(url: str, *, width: int = 1440, scheme: Any = "light") -> AsyncIterator[Page]:
    """A page of an empty profile. Nothing may go wrong on it unseen: no error, no request to another host."""
    faults: list[str] = []
    own = ("/".join(url.split("/")[:3]), "data:")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        size = ViewportSize(width=width, height=860)
        context = await browser.new_context(base_url=url, viewport=size, color_scheme=scheme)
        page = await context.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: request.url.startswith(own) or faults.append(request.url))
        page.on("console", lambda message: "Content Security Policy" in message.text and faults.append(message.text))
        await page.goto(url)
        yield page
        await browser.close()
    assert faults == []


@asynccontextmanager
async def scripted(*replies: Any, **settings: Any) -> AsyncIterator[str]:
    async with serving(create_app(deployment(engine(*replies), **settings))) as url:
        yield url


async def say(page: Page, text: str) -> None:
    await page.get_by_label("Message").fill(text)
    await page.keyboard.press("Enter")


async def finished(page: Page) -> None:
    await expect(page.locator(".reply:not(.running) .facts b").first).to_be_visible()
    await expect(page.locator(".running")).to_have_count(0)


async def test_a_chat_streams_with_its_events_usage_and_times(server: Server, facts: dict[str, Any]) -> None:
    async with browsing(server.url) as page:
        await expect(page.locator("#model")).to_have_value(MODEL)
        await expect(page.locator("#context")).to_have_text(f"{facts['context_length']:,} tokens of context")
        await page.get_by_label("Temperature").fill("0")
        await page.get_by_label("System prompt").fill("You are a helpful assistant.")
        await say(page, "What is the capital of France?")
        await finished(page)
        await expect(page.locator(".reply .text")).to_contain_text("Paris")
        shown_facts = await page.locator(".reply .facts").inner_text()
        expected = (
            r"finish stop|prompt \d+( \(\d+ cached\))?|completion \d+|first token [\d.]+ s|total [\d.]+ s|speed .+"
        )
        assert [line for line in shown_facts.splitlines() if not re.fullmatch(expected, line)] == []
        assert len(shown_facts.splitlines()) >= 5
        shown = await page.locator("#events .event.content span").all_inner_texts()
        assert shown  # in how many pieces is the machine's load
        text = "".join(json.loads(line.removeprefix("content ")) for line in shown)
        assert text == await page.locator(".reply .text").inner_text()
        await page.locator("#events .event.end").last.click()
        assert '"total_tokens"' in await page.locator("#events .event.end pre").inner_text()
        await page.get_by_role("tab", name="Request").click()
        assert '"temperature": 0' in await page.locator("#request pre").inner_text()
        await page.get_by_role("tab", name="Prompt").click()
        await expect(page.locator("#prompt pre")).to_contain_text("<|im_start|>system\nYou are a helpful assistant.")


async def test_the_conversation_goes_on_and_can_be_begun_anew(server: Server) -> None:
    async with browsing(server.url) as page:
        await page.get_by_label("Max tokens").fill("5")
        await say(page, "Hello")
        await finished(page)
        await say(page, "And now?")
        await expect(page.locator(".reply:not(.running) .facts")).to_have_count(2)
        await page.get_by_role("tab", name="Request").click()
        sent = await page.locator("#request pre").inner_text()
        assert sent.count('"role": "user"') == 2
        assert sent.count('"role": "assistant"') == 1
        await page.get_by_role("button", name="New chat").click()
        await expect(page.locator(".turn")).to_have_count(0)


async def test_a_forced_call_is_shown_as_a_call(server: Server) -> None:
    async with browsing(server.url) as page:
        await page.get_by_role("button", name="insert example").first.click()
        await page.get_by_label("Tool choice").select_option("required")
        await page.get_by_label("Further fields").fill('{"parallel_tool_calls": false}')
        await page.get_by_label("Temperature").fill("0")
        await say(page, "What is the weather in Paris?")
        await finished(page)
        await expect(page.locator(".call .top span")).to_have_text("get_weather")
        assert "city" in json.loads(await page.locator(".call pre").inner_text())
        await expect(page.locator("#events .event.tool").first).to_contain_text("call get_weather")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_reply_by_schema_is_json(server: Server, stream: bool) -> None:
    async with browsing(server.url) as page:
        await page.get_by_role("button", name="insert example").nth(1).click()
        await page.get_by_label("Max tokens").fill("200")
        await page.get_by_label("Temperature").fill("0")  # drawn, a text of no bound may not end in time
        await page.get_by_label("Stream the reply").set_checked(stream)
        await say(page, "Name a city.")
        await finished(page)
        assert json.loads(await page.locator(".reply .text").inner_text()).keys() == {"city", "country"}


async def test_stop_ends_the_reply_and_keeps_what_was_said(server: Server) -> None:
    async with browsing(server.url) as page:
        await page.get_by_label("Further fields").fill('{"ignore_eos": true}')
        await say(page, "Tell me a long story.")
        await expect(page.locator(".running .text p").first).to_be_visible()
        await page.get_by_role("button", name="Stop").click()
        await finished(page)
        await expect(page.locator(".facts")).to_contain_text("finish stopped")
        assert await page.locator(".reply .text").inner_text()


async def test_reasoning_is_folded_and_a_result_goes_back_to_the_model() -> None:
    first = reply(f"<think>They ask for the weather.</think><tool_call>{CALL}</tool_call>")
    async with scripted(first, reply("It is **sunny**, `18` degrees:\n\n- mild\n- dry")) as url, browsing(url) as page:
        await page.get_by_role("button", name="insert example").first.click()
        await say(page, "Weather in Paris?")
        await finished(page)
        thinking = page.locator(".thinking")
        assert await thinking.get_attribute("open") is None
        await thinking.locator("summary").click()
        await expect(thinking).to_contain_text("They ask for the weather.")
        await expect(page.locator(".thinking summary")).to_have_text(re.compile(r"Thought for [\d.]+ s"))
        await page.get_by_label("Result of get_weather").fill("18")
        await page.get_by_role("button", name="Return").click()
        await expect(page.locator(".text strong")).to_have_text("sunny")
        await expect(page.locator(".text li")).to_have_text(["mild", "dry"])
        await page.get_by_role("tab", name="Prompt").click()
        await expect(page.locator("#prompt pre")).to_contain_text("[result] 18")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("api", "path", "carries"),
    [
        ("OpenAI Responses", "/v1/responses", '"type": "function_call_output"'),
        ("Anthropic Messages", "/v1/messages", '"type": "tool_result"'),
    ],
)
async def test_a_loop_goes_its_way_over_the_api_that_is_chosen(api: str, path: str, carries: str, stream: bool) -> None:
    first = reply(f"<think>They ask for the weather.</think>I will see.<tool_call>{CALL}</tool_call>")
    async with scripted(first, reply("It is **sunny**.")) as url, browsing(url) as page:
        await page.get_by_label("API", exact=True).select_option(label=api)
        await page.get_by_label("System prompt").fill("Be kind.")
        await page.get_by_label("Stream the reply").set_checked(stream)
        await page.get_by_role("button", name="insert example").first.click()
        await say(page, "Weather in Paris?")
        await finished(page)
        await expect(page.locator(".thinking div")).to_have_text("They ask for the weather.")
        await expect(page.locator(".reply .text")).to_have_text("I will see.")
        await expect(page.locator(".call .top span")).to_have_text("get_weather")
        assert json.loads(await page.locator(".call pre").inner_text()) == {"city": "Paris"}
        await expect(page.locator(".facts").first).to_contain_text("finish tool_calls")
        await expect(page.locator(".facts").first).to_contain_text("reasoning")
        await page.get_by_label("Result of get_weather").fill("18")
        await page.get_by_role("button", name="Return").click()
        await expect(page.locator(".text strong")).to_have_text("sunny")
        await page.get_by_role("tab", name="Request").click()
        sent = await page.locator("#request pre").inner_text()
        assert f"{path} " in sent
        assert carries in sent
        await page.get_by_role("tab", name="Prompt").click()
        await expect(page.locator("#prompt pre")).to_contain_text("[result] 18")
        await expect(page.locator("#prompt pre")).to_contain_text("Be kind.")


@pytest.mark.parametrize(("api", "code"), [("responses", "server_error"), ("messages", "api_error")])
async def test_a_failure_over_another_api_is_shown(api: str, code: str) -> None:
    down = EngineError(502, "engine_error", "The engine failed.")
    async with scripted(reply("Hello there", error=down, error_after=3)) as url, browsing(url) as page:
        await page.get_by_label("API", exact=True).select_option(api)
        await say(page, "hi")
        await expect(page.get_by_role("alert")).to_contain_text("The engine failed.")
        await expect(page.get_by_role("alert")).to_contain_text(code)
        await page.get_by_label("Temperature").fill("9")
        await page.get_by_role("button", name="try again").click()
        await expect(page.get_by_role("alert")).to_contain_text("temperature")


async def test_text_of_the_model_is_never_markup() -> None:
    evil = "<img src=x onerror=alert(1)> [a](javascript:alert(1)) <b>bold</b>"
    evil += "\n\n```html\n<script>alert(1)</script>\n```"
    async with scripted(reply(evil)) as url, browsing(url) as page:
        await say(page, "hi")
        await finished(page)
        assert await page.locator(".text img, .text script, .text b, .text a").count() == 0
        await expect(page.locator(".text p")).to_have_text(evil.split("\n")[0])


async def test_failures_are_shown_with_code_and_can_be_tried_again() -> None:
    down = EngineError(502, "engine_error", "The engine failed.")
    replies = [reply("Hello there", error=down, error_after=3), reply("Hello."), reply("Hello.")]
    async with scripted(*replies) as url, browsing(url) as page:
        await say(page, "hi")
        await expect(page.get_by_role("alert")).to_contain_text("The engine failed.")
        await expect(page.get_by_role("alert")).to_contain_text("engine_error")
        await page.get_by_role("button", name="try again").click()
        await expect(page.locator(".reply .text")).to_have_text(["Hello."])
        await page.get_by_label("Temperature").fill("9")
        await say(page, "hi")
        await expect(page.get_by_role("alert")).to_contain_text("400  ·  invalid_value  ·  temperature")
        await page.get_by_label("Tools").fill("[{")
        await say(page, "hi")
        await expect(page.locator("#tools-problem")).to_be_visible()


@pytest.mark.parametrize("root_path", ["", "/llm"])
async def test_it_asks_for_the_key_and_forgets_it_with_the_tab(root_path: str) -> None:
    served = scripted(reply("Hello."), api_key=("sesame",), root_path=root_path)
    async with served as url, browsing(url + root_path) as page:
        await expect(page.locator("#context")).to_have_text("needs an API key")
        await page.get_by_label("API key").fill("wrong")
        await page.keyboard.press("Enter")
        await expect(page.locator("#context")).to_have_text("needs an API key")
        await page.get_by_label("API key").fill("sesame")
        await page.keyboard.press("Enter")
        await expect(page.locator("#model")).to_have_value("toy")
        await say(page, "hi")
        await finished(page)
        await page.get_by_role("tab", name="Request").click()
        assert "sesame" not in await page.locator("#request pre").inner_text()
        state = await page.context.storage_state()
        assert "sesame" not in json.dumps(state), "only the tab's own session storage has it"


@pytest.mark.parametrize("width", [390, 1024])
async def test_a_narrow_page_has_its_panels_behind_buttons(width: int) -> None:
    async with scripted(reply("Hello.")) as url, browsing(url, width=width) as page:
        await expect(page.locator("#settings")).not_to_be_visible()
        await page.get_by_role("button", name="Settings").click()
        await page.get_by_label("Temperature").fill("0")
        await page.keyboard.press("Escape")
        await expect(page.locator("#settings")).not_to_be_visible()
        await say(page, "hi")
        await finished(page)
        if width < 860:
            await page.get_by_role("button", name="Events").click()
        await expect(page.locator("#events .event.end").last).to_be_visible()
        overflow = await page.locator("html").evaluate("node => node.scrollWidth - node.clientWidth")
        assert overflow == 0


async def test_the_reference_page_lists_every_endpoint() -> None:
    async with scripted(reply("Hello.")) as url, browsing(url + "/docs") as page:
        await expect(page.locator(".path").first).to_have_text("/v1/chat/completions")
        await page.locator("summary").first.click()
        await expect(page.locator("details").first).to_contain_text("max_completion_tokens")
        assert await page.locator("details").count() > 10
