"""A Hugging Face checkpoint made of a GGUF file, and the greedy replies that ``transformers`` gives with it.

    python scripts/greedy_reference.py MODEL.gguf CHECKPOINT_DIRECTORY REPLIES.json [tiny]

Needs torch, transformers, accelerate, gguf and safetensors (the environment of ``scripts/e2e-vllm.sh``). The weights
are dequantized to float32, so that vLLM or SGLang and ``transformers`` compute with the very same numbers. ``tiny`` has
the same tokenizer before two small layers of random weights: it says nothing, quickly.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

QUESTIONS = (
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "Count from one to ten.",
    "Translate to German: good morning.",
    "Name three colours.",
)
LENGTH = 64


TINY = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16}


def convert(source: Path, target: Path, *, tiny: bool = False) -> tuple[Any, Any]:
    model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32).eval()
    if tiny:
        torch.manual_seed(0)
        model.config.update({**TINY, **HEADS, "tie_word_embeddings": False})
        model = AutoModelForCausalLM.from_config(model.config, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    target.mkdir(parents=True, exist_ok=True)
    tied = model.config.tie_word_embeddings
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    if tied:
        weights.pop("lm_head.weight", None)
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    # The loader still calls the model quantized, which it no longer is.
    config = model.config.to_dict() | {"dtype": "float32", "architectures": [type(model).__name__]}
    config.pop("quantization_config", None)
    (target / "config.json").write_text(json.dumps(config, indent=1, default=str))
    tokenizer.save_pretrained(target)
    return model, tokenizer


def reply(model: Any, prompt: list[int], eos: int) -> list[int]:
    with torch.inference_mode():
        made = model.generate(
            torch.tensor([prompt]), max_new_tokens=LENGTH, do_sample=False, eos_token_id=eos, pad_token_id=eos
        )
    ids: list[int] = made[0, len(prompt) :].tolist()
    return ids


def main() -> None:
    source, target, replies = map(Path, sys.argv[1:4])
    model, tokenizer = convert(source, target, tiny="tiny" in sys.argv[4:])
    eos: int = tokenizer.eos_token_id
    found = []
    for question in QUESTIONS:
        text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        prompt = tokenizer.encode(text, add_special_tokens=False)
        found.append({"prompt": prompt, "ids": reply(model, prompt, eos)})
        print(f"{question} -> {tokenizer.decode(found[-1]['ids'])!r}")
    facts = {"vocab_size": model.config.vocab_size, "eos_token_id": eos, "replies": found}
    replies.write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
