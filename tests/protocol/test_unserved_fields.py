"""Fields of other APIs that would constrain a reply are refused, never ignored."""

from __future__ import annotations

from typing import Any

import pytest

from paraserve.protocol.unserved import INSTEAD, UnservedFields
from tests.api.wire import CHAT, COMPLETIONS, post
from tests.pairwise import diagonal
from tests.toy import client, deployment, engine


def test_every_field_has_a_word_on_what_to_send_instead() -> None:
    assert set(INSTEAD) == set(UnservedFields.__struct_fields__)


@pytest.mark.parametrize(
    ("name", "value", "path"), diagonal(INSTEAD, ["yes", ["a"], {"a": 1}, True], [CHAT, COMPLETIONS, f"{CHAT}/render"])
)
async def test_a_field_that_would_constrain_the_reply_is_a_400_that_names_it(name: str, value: Any, path: str) -> None:
    scripted = engine()
    async with client(deployment(scripted)) as http:
        default = {"prompt": "hi"} if path == COMPLETIONS else {"messages": [{"role": "user", "content": "hi"}]}
        response = await http.post(path, json={**default, name: value})
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, name, "unsupported_parameter")
    assert INSTEAD[name] in error["message"]
    assert scripted.requests == []


@pytest.mark.parametrize(("name", "value", "path"), diagonal(INSTEAD, [None, False, [], {}, ""], [CHAT, COMPLETIONS]))
async def test_a_value_that_says_nothing_is_none(name: str, value: Any, path: str) -> None:
    async with client(deployment(engine())) as http:
        assert (await post(http, path, **{name: value})).status_code == 200


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_a_field_that_the_operator_passes_on_is_the_engines_business(path: str) -> None:
    scripted = engine()
    async with client(deployment(scripted, engine_extra_fields=("guided_json",), engine_fields_from="anyone")) as http:
        assert (await post(http, path, guided_json={"type": "object"})).status_code == 200
    assert scripted.requests[0].extras == {"guided_json": {"type": "object"}}


async def test_a_call_of_the_past_in_openais_first_form_is_refused() -> None:
    past: dict[str, Any] = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    async with client(deployment(engine())) as http:
        response = await post(http, messages=[{"role": "user", "content": "hi"}, past])
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "messages[1].function_call"
        past |= {"content": "ok", "function_call": None}
        again = await post(http, messages=[{"role": "user", "content": "hi"}, past, {"role": "user", "content": "hi"}])
        assert again.status_code == 200
