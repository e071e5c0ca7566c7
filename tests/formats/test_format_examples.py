"""The real replies of the shared assets mean what they should, in every split of their text and of their tokens."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from paraserve.formats.families import FORMATS
from paraserve.formats.types import ReplyStart, ToolSpec
from tests.formats.formats_kit import Folded, every_split, parse, random_split

BY_NAME = {format.name: format for format in FORMATS}
FORMAT_OF = {
    "glm-4.5": "glm45",
    "glm-4.6": "glm45",
    "glm-4.7": "glm47",
    "glm-5.3-flash": "glm47",
    "kimi-k2-instruct": "kimi_k2",
    "kimi-k2-thinking": "kimi_k2",
    "kimi-k2.5": "kimi_k2",
    "kimi-k2.6": "kimi_k2",
    "kimi-k3": "kimi_k3",
    "qwen2.5": "hermes",
    "qwen3-instruct-2507": "hermes",
    "qwen3": "qwen3",
    "qwen3-thinking-2507": "qwen3",
    "qwen3.5": "qwen35",
    "qwen3.6": "qwen36",
    "qwen3.8": "qwen36",
    "qwen3-coder": "qwen3_coder",
    "qwq-32b": "qwen3",
    "deepseek-r1-0528": "deepseek_r1",
    "deepseek-v3-0324": "deepseek_v3",
    "deepseek-v3.1": "deepseek_v31",
    "deepseek-v3.2": "deepseek_v32",
    "deepseek-v4": "deepseek_v4",
    "gpt-oss": "gpt_oss",
    "llama-3.1": "llama3_json",
    "llama-3.1-multi": "llama3_json",
    "pythonic": "pythonic",
    "mistral-7b-v0.3": "mistral_v3",
    "mistral-nemo-2407": "mistral_v3",
    "mistral-small-3.2-2506": "mistral_v11",
    "devstral-2507": "mistral_v13",
    "ministral-3-reasoning-2512": "mistral_v13",
    "minimax-m2": "minimax_m2",
    "minimax-m3": "minimax_m3",
    "hermes-3": "hermes",
    "gemma4": "gemma4",
    "step-3.5-flash": "step3p5",
    "mimo-v2.5": "mimo",
    "mimo-vl": "hermes",
    "step3": "step3",
    "hunyuan-hy3": "hunyuan3",
    "seed-oss": "seed_oss",
    "nemotron-3-nano": "nemotron3",
    "smollm2-1.7b": "smollm2",
    "smollm3": "smollm3",
}
TOOLS = (
    ToolSpec(
        "get_weather",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "opts": {
                    "type": "object",
                    "properties": {
                        "units": {"type": "string"},
                        "days": {"type": "array", "items": {"type": "integer"}},
                        "tag": {"type": "string"},
                    },
                },
                "note": {"type": "string"},
            },
        },
    ),
    ToolSpec(
        "search_docs",
        {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "limit": {"type": "integer"},
                "exact": {"type": "boolean"},
                "ratio": {"type": "number"},
            },
        },
    ),
)


@pytest.fixture(scope="module")
def examples(shared_assets: Path) -> dict[str, dict[str, Any]]:
    lines = (shared_assets / "examples.jsonl").read_text(encoding="utf-8").splitlines()
    return {record["family"]: record for record in map(json.loads, lines)}


def starts(record: dict[str, Any]) -> Iterator[ReplyStart]:
    """Every start that the reply fits: it opens its reasoning itself, or it begins inside."""
    opening = BY_NAME[FORMAT_OF[record["family"]]].reasoning
    if not record["expect"]["reasoning"]:
        yield from (ReplyStart.HEADER, ReplyStart.CONTENT)
        return
    assert opening is not None
    yield ReplyStart.REASONING
    if record["raw"].lstrip().startswith(opening.open):
        yield ReplyStart.HEADER


def check(record: dict[str, Any], folded: Folded) -> None:
    expect = record["expect"]
    assert folded.reasoning == (expect["reasoning"] or "")
    assert folded.content == (expect["content"] or "")
    assert folded.plain_calls == [(call["name"], call["arguments"]) for call in expect["tool_calls"]]
    assert all(call.ended for call in folded.calls)


def test_every_example_is_known(examples: dict[str, dict[str, Any]]) -> None:
    assert set(examples) == set(FORMAT_OF)


@pytest.mark.parametrize("family", FORMAT_OF)
def test_example_means_the_same_in_every_split(examples: dict[str, dict[str, Any]], family: str) -> None:
    record = examples[family]
    for start in starts(record):
        for chunks in every_split(record["raw"]):
            check(record, parse(BY_NAME[FORMAT_OF[family]], chunks, tools=TOOLS, start=start)[0])


@pytest.mark.parametrize("family", FORMAT_OF)
def test_example_means_the_same_in_random_splits(examples: dict[str, dict[str, Any]], family: str) -> None:
    record = examples[family]
    for start in starts(record):
        for seed in range(200):
            chunks = random_split(record["raw"], seed)
            check(record, parse(BY_NAME[FORMAT_OF[family]], chunks, tools=TOOLS, start=start)[0])


@cache
def token_bytes_of(directory: Path) -> Callable[[int], bytes]:
    """Id to bytes, for the two kinds of tokenizer files that the assets hold."""
    if (directory / "tiktoken.model").exists():
        lines = (directory / "tiktoken.model").read_bytes().splitlines()
        table = {int(rank): base64.b64decode(token) for token, rank in (line.split() for line in lines)}
        config = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
        added = {int(id_): token["content"].encode() for id_, token in config["added_tokens_decoder"].items()}
        return (table | added).__getitem__
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    added_ids = {id_: token.content.encode() for id_, token in tokenizer.get_added_tokens_decoder().items()}
    byte_of = {char: byte for byte, char in _byte_alphabet().items()}

    def of(id_: int) -> bytes:
        return added_ids[id_] if id_ in added_ids else bytes(byte_of[char] for char in tokenizer.id_to_token(id_) or "")

    return of


def _byte_alphabet() -> dict[int, str]:
    """GPT-2's printable stand-ins for bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def decode_in_groups(token_bytes: Callable[[int], bytes], ids: list[int], size: int) -> list[str]:
    """The text of groups of ids, an unfinished character kept for the next group."""
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")()
    groups = [ids[i : i + size] for i in range(0, len(ids), size)]
    return [decoder.decode(b"".join(map(token_bytes, group))) for group in groups]


@pytest.mark.parametrize("size", [1, 3, 10])
def test_examples_mean_the_same_token_by_token(
    examples: dict[str, dict[str, Any]], shared_assets: Path, size: int
) -> None:
    checked = 0
    for family, record in examples.items():
        directory = shared_assets / "tokenizers" / (record.get("tokenizer") or "")
        if not record.get("ids") or not directory.is_dir():
            continue
        chunks = decode_in_groups(token_bytes_of(directory), record["ids"], size)
        assert "".join(chunks) == record["raw"]
        for start in starts(record):
            check(record, parse(BY_NAME[FORMAT_OF[family]], chunks, tools=TOOLS, start=start)[0])
        checked += 1
    assert checked >= 15
