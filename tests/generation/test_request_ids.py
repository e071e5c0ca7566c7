"""Names of generations in the engine."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraserve.generation.plan import engine_name
from tests.api.wire import CHAT, COMPLETIONS, USER, post
from tests.toy import client, deployment, engine


async def test_no_name_of_a_generation_begins_with_another_one() -> None:
    scripted = engine()
    async with client(deployment(scripted)) as http:
        assert (await post(http, n=12, max_tokens=1)).status_code == 200
        assert (await post(http, n=12, max_tokens=1, stream=True)).status_code == 200
    names = [request.request_id for request in scripted.requests]
    assert len(names) == 24
    assert not [(a, b) for i, a in enumerate(names) for j, b in enumerate(names) if i != j and b.startswith(a)]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_generation_is_named_by_reply_choice_and_the_clients_id_though_clients_share_one(
    path: str, stream: bool
) -> None:
    scripted = engine()
    headers = {"x-request-id": "job_7"}
    async with client(deployment(scripted)) as http:
        for _ in range(2):
            default = {"messages": USER} if path == CHAT else {"prompt": "hi"}
            asked = {**default, "n": 2, "max_tokens": 1, "stream": stream}
            assert (await http.post(path, json=asked, headers=headers)).headers["x-request-id"] == "job_7"
    names = [request.request_id for request in scripted.requests]
    assert [name.partition(".")[2] for name in names] == ["job_7"] * 4
    assert len(set(names)) == 4
    assert all(re.fullmatch(r"(chat)?cmpl-[0-9a-f]+-000[01]\.job_7", name) for name in names)
    assert all(request.routing.headers["x-request-id"] == "job_7" for request in scripted.requests)


async def test_an_id_that_was_made_here_names_the_generation_too() -> None:
    scripted = engine()
    async with client(deployment(scripted)) as http:
        made = (await post(http)).headers["x-request-id"]
    assert scripted.requests[0].request_id.endswith("." + made)


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=128))
def test_no_id_of_a_client_gives_a_name_that_an_engine_reads_as_its_own(client_id: str) -> None:
    """SGLang knows its probes by how a name begins, vLLM's connectors find addresses between runs of underscores."""
    name = engine_name("chatcmpl-1f", 3, client_id)
    assert re.fullmatch(r"chatcmpl-1f-0003(\.[A-Za-z0-9._:-]+)?", name)
    assert "__" not in name


def test_an_address_in_an_id_is_no_address_in_the_name() -> None:
    evil = "___prefill_addr_1.2.3.4:5___decode_addr_1.2.3.4:5_" + "0" * 32
    assert engine_name("c", 0, evil) == "c-0000.-prefill_addr_1.2.3.4:5-decode_addr_1.2.3.4:5_" + "0" * 32
