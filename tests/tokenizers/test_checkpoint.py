"""What a checkpoint's files say, and what is said when they are missing or broken."""

import json

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from paraserve.tokenizers.base import CheckpointError
from paraserve.tokenizers.checkpoint import context_length_of, load_checkpoint
from tests.prompt.own_templates import LISTS, PLAIN


@pytest.fixture
def directory(tmp_path):
    tokenizer = tokenizers.Tokenizer(
        models.BPE({letter: n for n, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, [])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>", "<|end|>"])
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_str())
    config = {
        "bos_token": "<s>",
        "eos_token": {"content": "</s>"},
        "chat_template": PLAIN,
        "response_template": {"x": 1},
    }
    write(tmp_path, "tokenizer_config.json", config)
    write(tmp_path, "config.json", {"max_position_embeddings": 4096, "eos_token_id": 257})
    write(tmp_path, "generation_config.json", {"temperature": 0.7, "eos_token_id": [258, 257]})
    return tmp_path


def write(directory, name, document):
    (directory / name).write_text(json.dumps(document))


def test_every_file_is_read(directory):
    checkpoint = load_checkpoint(directory)
    assert checkpoint.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    assert checkpoint.eos_token_ids == {257, 258}
    assert checkpoint.context_length == 4096
    assert checkpoint.generation_config["temperature"] == 0.7
    assert checkpoint.response_template == {"x": 1}
    assert checkpoint.templates["default"] == PLAIN


def test_template_files_win_over_the_config_and_named_ones_stand_beside_them(directory):
    (directory / "chat_template.jinja").write_text(LISTS)
    (directory / "additional_chat_templates").mkdir()
    (directory / "additional_chat_templates" / "tool_use.jinja").write_text(PLAIN)
    templates = load_checkpoint(directory).templates
    assert templates == {"default": LISTS, "tool_use": PLAIN}


def test_named_templates_in_the_config(directory):
    named = [{"name": "default", "template": LISTS}, {"name": "tool_use", "template": PLAIN}]
    write(directory, "tokenizer_config.json", {"chat_template": named})
    assert set(load_checkpoint(directory).templates) == {"default", "tool_use"}
    assert load_checkpoint(directory, chat_template="tool_use").templates["default"] == PLAIN


def test_the_operators_file_serves_every_request(directory, tmp_path):
    file = tmp_path / "mine.jinja"
    file.write_text(LISTS)
    templates = load_checkpoint(directory, chat_template=str(file)).templates
    assert templates == {"default": LISTS}


def test_a_checkpoint_without_a_template_loads(directory):
    write(directory, "tokenizer_config.json", {})
    assert load_checkpoint(directory).templates == {}


def test_what_is_missing_is_named_with_what_to_do(directory, tmp_path):
    with pytest.raises(CheckpointError, match="there is no model at"):
        load_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"no such file.*templates are: default"):
        load_checkpoint(directory, chat_template="none.jinja")
    (directory / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read"):
        load_checkpoint(directory)
    (directory / "config.json").unlink()
    (directory / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json, .* or vocab\.json.*--tokenizer-path"):
        load_checkpoint(directory)


def test_a_tokenizer_from_elsewhere_keeps_the_models_template(directory, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (directory / "tokenizer.json").rename(other / "tokenizer.json")
    checkpoint = load_checkpoint(directory, tokenizer_path=other)
    assert checkpoint.templates["default"] == PLAIN
    assert checkpoint.context_length == 4096


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({}, None),
        ({"max_position_embeddings": 8192}, 8192),
        ({"text_config": {"max_position_embeddings": 8192}}, 8192),
        ({"n_positions": 1024}, 1024),
        ({"max_position_embeddings": True}, None),
        ({"max_position_embeddings": 32768, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 131072),
        (
            {
                "max_position_embeddings": 163840,
                "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
            },
            163840,
        ),
        (
            {
                "max_position_embeddings": 131072,
                "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
            },
            131072,
        ),
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}, 131072),
    ],
)
def test_the_context_length_is_what_the_config_was_made_for(config, length):
    assert context_length_of(config) == length
