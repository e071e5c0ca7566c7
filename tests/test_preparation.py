"""Who is prepared where, and when: on the loop or off it, and party by party."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable

import pytest

from paraserve.preparation import LARGE_BODY, SMALL_BODY, Preparation
from paraserve.prompt.bound import PromptBound
from paraserve.prompt.chat import ChatPrompt
from paraserve.protocol.errors import RequestError
from tests.api.wire import CHAT, COMPLETIONS, USER
from tests.toy import TOKENIZER, client, deployment, engine
from tests.waiting import PATIENCE, until

LARGE = SMALL_BODY + 1
TEXT_PATHS = ("/tokenize", COMPLETIONS)
CHAT_PATHS = (CHAT, f"{CHAT}/render", "/tokenize", "/v1/messages", "/v1/messages/count_tokens")


class Works:
    """Works that end when they are told to, and what is known of them."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._gates: dict[str, threading.Event] = {}

    def work(self, name: str) -> Callable[[], str]:
        gate = self._gates[name] = threading.Event()

        def work() -> str:
            self.begun.append(name)
            assert gate.wait(PATIENCE)
            return name

        return work

    def end(self, *names: str) -> None:
        for name in names:
            self._gates[name].set()


@pytest.fixture
def works() -> Works:
    return Works()


async def test_a_small_body_is_prepared_at_once_and_a_large_one_in_a_thread() -> None:
    preparation = Preparation()
    here = threading.get_ident()
    assert await preparation.run("a", SMALL_BODY, threading.get_ident) == here
    for size in (LARGE, LARGE_BODY):
        assert await preparation.run("a", size, threading.get_ident) != here
    preparation.close()


async def test_a_party_never_has_all_threads_and_another_gets_one_at_once(works: Works) -> None:
    preparation = Preparation(threads=3)
    first = [asyncio.ensure_future(preparation.run("a", LARGE, works.work(f"a{i}"))) for i in range(8)]
    await until(lambda: len(works.begun) == 2)
    other = asyncio.ensure_future(preparation.run("b", LARGE, works.work("b0")))
    await until(lambda: "b0" in works.begun)
    assert works.begun == ["a0", "a1", "b0"]
    works.end("b0")
    assert await other == "b0"
    for i in range(8):
        works.end(f"a{i}")
    assert await asyncio.gather(*first) == [f"a{i}" for i in range(8)]
    preparation.close()


async def test_those_who_wait_have_their_turns_party_by_party(works: Works) -> None:
    preparation = Preparation(threads=1)
    names = ["a0", "a1", "a2", "b0", "c0", "b1"]
    tasks = [asyncio.ensure_future(preparation.run(name[0], LARGE, works.work(name))) for name in names]
    for place, name in enumerate(["a0", "a1", "b0", "c0", "a2", "b1"]):
        await until(lambda place=place: len(works.begun) > place)  # type: ignore[misc]
        assert works.begun[place] == name
        works.end(name)
    assert await asyncio.gather(*tasks) == names
    preparation.close()


async def test_one_who_leaves_gives_up_the_turn_and_work_that_began_keeps_its_thread(works: Works) -> None:
    preparation = Preparation(threads=1)
    begun = asyncio.ensure_future(preparation.run("a", LARGE, works.work("a0")))
    await until(lambda: works.begun)
    gone = asyncio.ensure_future(preparation.run("b", LARGE, works.work("b0")))
    last = asyncio.ensure_future(preparation.run("c", LARGE, works.work("c0")))
    await asyncio.sleep(0)
    for task in (gone, begun):
        task.cancel()
        await asyncio.wait({task})
    assert works.begun == ["a0"], "its thread is not free before the work has ended"
    works.end("a0", "c0")
    assert await last == "c0"
    assert works.begun == ["a0", "c0"]
    preparation.close()


async def test_a_failure_is_the_works_own_and_frees_the_thread() -> None:
    preparation = Preparation(threads=1)

    def fails() -> None:
        raise RequestError("no")

    for size in (1, LARGE, LARGE):
        with pytest.raises(RequestError, match="no"):
            await preparation.run("a", size, fails)
    preparation.close()


BIG = "word " * (SMALL_BODY // 4)
LARGE_CHATS = {
    "a message": {"messages": [{"role": "user", "content": BIG}]},
    "many messages": {"messages": USER * 1_000},
    "a tool": {
        "messages": USER,
        "tools": [{"type": "function", "function": {"name": "f", "description": BIG, "parameters": {}}}],
    },
    "documents": {"messages": USER, "documents": [{"title": "t", "text": BIG}]},
    "a variable of the template": {"messages": USER, "chat_template_kwargs": {"x": BIG}},
    "another field": {"messages": USER, "user": BIG},
    "choices": {"messages": USER, "n": 64},
}


@pytest.mark.parametrize("name", LARGE_CHATS)
async def test_no_large_chat_is_prepared_on_the_event_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, prepare = [], ChatPrompt.prepare

    def seen(self: ChatPrompt, *args: object, **options: object) -> object:
        where.append(threading.get_ident())
        return prepare(self, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ChatPrompt, "prepare", seen)
    async with client(deployment(engine(context_length=100_000))) as http:
        assert (await http.post(CHAT, json=LARGE_CHATS[name])).status_code == 200
        assert (await http.post(CHAT, json={"messages": USER})).status_code == 200
    assert where[0] != threading.get_ident() == where[1]


def test_a_text_that_may_fit_passes_and_one_that_cannot_is_refused() -> None:
    bound = PromptBound.of(TOKENIZER, 100)
    longest = max(map(len, TOKENIZER.added_tokens))
    bound.check("x" * (100 * longest))
    with pytest.raises(Exception, match="maximum context length is 100 tokens") as refused:
        bound.check("x" * (300 * longest), "prompt")
    assert refused.value.param == "prompt"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("path", "chat"), [*((path, False) for path in TEXT_PATHS), *((path, True) for path in CHAT_PATHS)]
)
async def test_a_prompt_that_cannot_fit_is_refused_before_it_is_tokenized(
    path: str, chat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "x" * 1_000_000
    body = {"messages": [{"role": "user", "content": long}], "max_tokens": 5} if chat else {"prompt": long}
    served, longest = deployment(engine(context_length=1000)), 0
    encode = TOKENIZER.encode

    def seen(text: str, **options: bool) -> list[int]:
        nonlocal longest
        longest = max(longest, len(text))
        return encode(text, **options)

    monkeypatch.setattr(TOKENIZER, "encode", seen)
    async with client(served) as http:
        response = await http.post(path, content=json.dumps(body))
    assert response.status_code == 400
    assert "1000 tokens" in response.text
    assert longest < len(long)
