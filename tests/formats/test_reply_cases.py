"""Replies as real models write them: cases from public reports, through the whole server.

Each case has a template, a tokenizer, tools, the text that a model wrote and what is right. They are no part of the
project: they lie beside the shared assets, and the test skips where they are not (`PARASERVE_SHARED_CASES`).
"""

from __future__ import annotations

import json
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from paraserve.deploy import choose_format, join
from paraserve.engines.base import EngineInfo
from paraserve.engines.scripted.engine import ScriptedEngine, ScriptedReply
from paraserve.settings import ServerSettings
from paraserve.tokenizers.checkpoint import Checkpoint, load_checkpoint
from tests.policies.exchange import FoldedChoice, given, send

ASSETS = Path(
    os.environ.get("PARASERVE_SHARED_ASSETS", Path(__file__).resolve().parents[2].parent / "shared" / "assets")
)
CASES = Path(os.environ.get("PARASERVE_SHARED_CASES", ASSETS.parent / "cases-2"))
STREAMED = {"f07-k3-think-not-closed-3"}
"""Replies that turn out to be the answer when it has been streamed as reasoning: it stays reasoning, whole too."""
FILES = sorted(file for number in range(4, 16) for file in CASES.glob(f"f{number:02}-*.json"))


@cache
def read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The checkpoint of a file of cases: its template, and a tokenizer with the tokens that the family adds."""

    @cache
    def of(file: Path) -> Checkpoint:
        wanted = read(file)["checkpoint"]
        directory = tmp_path_factory.mktemp(file.stem)
        shutil.copytree(ASSETS / "tokenizers" / wanted["tokenizer"], directory, dirs_exist_ok=True)
        vocabulary = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
        known = {token["content"]: token["id"] for token in vocabulary["added_tokens"]}
        free = max([*known.values(), *vocabulary["model"]["vocab"].values()]) + 1
        new = [text for text in wanted["added_tokens"] if text not in known]
        vocabulary["added_tokens"] += [
            {"id": free + i, "content": text, "special": text in wanted["special_tokens"]}
            | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
            for i, text in enumerate(new)
        ]
        (directory / "tokenizer.json").write_text(json.dumps(vocabulary), encoding="utf-8")
        config = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
        config.pop("added_tokens_decoder", None)
        if wanted["eos"]:
            config["eos_token"] = wanted["eos"]
        (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        return load_checkpoint(directory, chat_template=str(ASSETS / "templates" / wanted["template"]))

    return of


async def answers(file: Path, case: dict[str, Any], checkpoint: Checkpoint) -> list[tuple[str, FoldedChoice]]:
    """The reply at the wire: whole and streamed, in every size of chunk that the file asks for."""
    tokenizer = checkpoint.tokenizer
    token_ids = tokenizer.encode(case["reply"])
    info = EngineInfo(
        context_length=32768,
        vocab_size=tokenizer.vocab_size,
        eos_token_ids=checkpoint.eos_token_ids,
        constraints=frozenset({"lark"}),
    )
    settings = ServerSettings(**given(" ".join(read(file)["flags"])))
    body = {"messages": read(file)["messages"], "tools": case["tools"], **case["request"]}
    stops = case["finish"] == "stop"
    end = sorted(checkpoint.eos_token_ids)[:1] if stops else []  # without one the engine stops by itself
    limit = {} if stops else {"max_tokens": len(token_ids)}
    ways = [(size, mode) for size in read(file)["chunks"] for mode in read(file)["modes"]]
    engine = ScriptedEngine(
        [ScriptedReply(token_ids=[*token_ids, *end], chunk_sizes=(size,)) for size, _ in ways], info=info
    )
    deployment = join(settings, checkpoint, choose_format(settings, checkpoint), engine, model_path=Path("m"))
    found = []
    for size, mode in ways:
        got = await send({**body, **limit, "stream": mode == "stream"}, deployment, engine)
        assert got.status == 200, got.body
        found.append((f"{mode}, {size}", got.choices[0]))
    return found


@pytest.mark.skipif(not FILES, reason=f"there are no shared cases here ({CASES}); set PARASERVE_SHARED_CASES")
@pytest.mark.parametrize(
    ("file", "case"),
    [pytest.param(file, case, id=case["id"]) for file in FILES for case in read(file)["cases"]],
)
async def test_a_reply_of_a_real_model_means_what_it_was_meant_to(
    file: Path, case: dict[str, Any], checkpoints: Any
) -> None:
    expected = case["expected"]
    if case["id"] in STREAMED:
        expected = {"reasoning": expected["content"], "content": ""}
    for how, choice in await answers(file, case, checkpoints(file)):
        got = {
            "reasoning": choice.reasoning,
            "content": choice.content,
            "calls": [[call["name"], json.loads(call["arguments"] or "null")] for call in choice.calls],
            "finish": choice.finish,
        }
        wanted = {key: value for key, value in expected.items() if key in got}
        if "calls" in wanted:
            wanted["calls"] = [[name, json.loads(arguments)] for name, arguments in wanted["calls"]]
        assert {key: got[key] for key in wanted} == wanted, how
