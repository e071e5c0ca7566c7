"""Whatever a checkpoint's files hold: it serves, or its start ends in one line that names the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paraserve.deploy import choose_format, deploy, join
from paraserve.settings import ServerSettings
from paraserve.start_error import StartError
from paraserve.tokenizers.base import CheckpointError, Tokenizer
from paraserve.tokenizers.checkpoint import load_checkpoint
from paraserve.tokenizers.huggingface import HuggingFaceTokenizer
from paraserve.tokenizers.token_table import MAX_IDS, TokenizerPanic, TokenTable
from tests.api.wire import CHAT, USER
from tests.tokenizers.broken_files import KINDS, broken
from tests.toy import client, deployment, engine

SEEDS = range(40)
TEXT = "hello </s>\n  he <new><|end|>"

UNBOUNDED = r"(q+)+$|."
"""A pattern that gives up on `GIVES_UP`: what Oniguruma (in `tokenizers`) answers with a panic."""
GIVES_UP = "q" * 40 + "b"


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_file_is_one_line_that_names_it(kind: str, tmp_path: Path) -> None:
    refused = 0
    for seed in SEEDS:
        directory = tmp_path / str(seed)
        directory.mkdir()
        source = broken(kind, seed, directory)
        settings = ServerSettings(model_path=str(source), response_store="memory")
        try:
            checkpoint = load_checkpoint(source)
            served = join(settings, checkpoint, choose_format(settings, checkpoint), engine(), model_path=source)
        except StartError as error:
            said = str(error)
            assert said.isprintable(), seed
            assert len(said) < 2_500, seed
            assert str(directory) in said or said.startswith("chat template"), (seed, said)
            refused += 1
        else:
            _check(served.tokenizer)
    assert 5 < refused < len(SEEDS) - 5, "neither whole files alone nor a reader that refuses everything"


def _check(tokenizer: Tokenizer) -> None:
    assert 0 < tokenizer.vocab_size <= MAX_IDS
    for special in (False, True):
        ids = tokenizer.encode(TEXT, add_special_tokens=special)
        assert all(0 <= number < tokenizer.vocab_size for number in ids)


BROKEN_TEMPLATES = {
    "no Jinja": "{% for m in",
    "Python refuses its loops": "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
    "Python refuses its branches": "{% if 1 %}" * 120 + "{% endif %}" * 120,
    "too deep": "{{ " + "(" * 100_000 + "1" + ")" * 100_000 + " }}",
    "a number of many digits": "{{ " + "9" * 5_000 + " }}",
    "an argument twice": "{{ dict(a=1, a=2) }}",
    "a parameter twice": "{% macro f(a, a) %}{% endmacro %}",
    "a break outside of a loop": "{% break %}",
    "a break that leaves a macro": "{% for i in [1] %}{% call f() %}{% break %}{% endcall %}{% endfor %}",
    "words for the terminal": "{% \x1b[2J\n %}",
}


@pytest.mark.parametrize("name", BROKEN_TEMPLATES)
async def test_a_broken_template_is_one_line_that_names_its_file(name: str, tmp_path: Path) -> None:
    for file, content in KINDS["tekken.json"]().items():
        (tmp_path / file).write_text(json.dumps(content))
    path = tmp_path / "chat_template.jinja"
    path.write_text(BROKEN_TEMPLATES[name])
    with pytest.raises(StartError) as refused:
        await deploy(ServerSettings(model_path=str(tmp_path), engine="scripted"), lambda _: None)
    said = str(refused.value)
    assert said.startswith(str(path))
    assert said.isprintable()


@pytest.mark.parametrize("number", [-1, MAX_IDS, 2**40, 2**70])
def test_an_id_that_no_vocabulary_has_is_refused_before_a_table_is_made(number: int) -> None:
    with pytest.raises(ValueError, match=str(number)):
        TokenTable.from_bytes({0: b"a", number: b"b"}, [])


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_an_end_token_that_no_vocabulary_has_is_refused(name: str, tmp_path: Path) -> None:
    for file, content in KINDS["tekken.json"]().items():
        (tmp_path / file).write_text(json.dumps({"eos_token_id": 2**24} if file == name else content))
    with pytest.raises(CheckpointError, match=rf"{name} cannot be read: it has the token id 16777216"):
        load_checkpoint(tmp_path)


def panicking_tokenizer(monkeypatch: pytest.MonkeyPatch) -> HuggingFaceTokenizer:
    def cannot_read(_: str) -> None:
        raise ValueError

    monkeypatch.setattr("paraserve.tokenizers.huggingface.FastEncoder", cannot_read)
    document = KINDS["tokenizer.json"]()["tokenizer.json"]
    document["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": UNBOUNDED}
    return HuggingFaceTokenizer(json.dumps(document))


async def test_a_tokenizer_that_panics_fails_one_request_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = panicking_tokenizer(monkeypatch)
    with pytest.raises(TokenizerPanic):
        tokenizer.encode(GIVES_UP)
    async with client(deployment(engine(), tokenizer=tokenizer)) as http:  # type: ignore[arg-type]
        for path, body in (
            (CHAT, {"messages": [USER[0] | {"content": GIVES_UP}]}),
            ("/tokenize", {"prompt": GIVES_UP}),
        ):
            failed = await http.post(path, json=body)
            assert (failed.status_code, failed.json()["error"]["code"]) == (500, "internal_error")
            large = await http.post(path, json=body | {"user": "x" * 20_000})
            assert large.status_code == 500, "in a thread, too"
            assert (await http.post(CHAT, json={"messages": USER})).status_code == 200
