"""The fake SGLang server by the rules of the real one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from paraserve.engines.http.client import EngineHTTP
from tests.engines.sglang_rules import Served, SGLangRules
from tests.fakes.serving import serving
from tests.fakes.sglang_checks import Arguments
from tests.fakes.sglang_fake import FakeSGLang

SERVERS = {
    "as it is": FakeSGLang(),
    "incremental, in pages, of a small pool": FakeSGLang(
        arguments=Arguments(max_total_tokens=600, page_size=16), incremental=True
    ),
    "llguidance": FakeSGLang(arguments=Arguments(grammar_backend="llguidance")),
    "without a tokenizer": FakeSGLang(arguments=Arguments(skip_tokenizer_init=True)),
    "Rust front end": FakeSGLang(rust=True, incremental=True),
    "deterministic": FakeSGLang(arguments=Arguments(deterministic=True)),
}


class TestFakeSGLang(SGLangRules):
    @pytest.fixture(params=SERVERS)
    async def server(self, request: pytest.FixtureRequest) -> AsyncIterator[Served]:
        like = SERVERS[request.param]
        fake = FakeSGLang(arguments=like.arguments, incremental=like.incremental, rust=like.rust)
        async with serving(fake) as url:
            http = EngineHTTP(url)
            await http.open()
            yield Served(http, fake.server_info(), fake.arguments.context_length)
            await http.close()
