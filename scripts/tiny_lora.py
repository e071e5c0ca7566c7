"""A LoRA adapter of random weights for a Llama checkpoint, by vLLM's Python: ``tiny_lora.py CHECKPOINT DIRECTORY``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

RANK = 8
checkpoint, directory = map(Path, sys.argv[1:])
config = json.loads((checkpoint / "config.json").read_text())
size, layers = config["hidden_size"], config["num_hidden_layers"]
torch.manual_seed(1)
weights = {}
for layer in range(layers):
    name = f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_"
    weights[f"{name}A.weight"] = torch.randn(RANK, size)
    weights[f"{name}B.weight"] = torch.randn(size, RANK)
directory.mkdir()
save_file(weights, directory / "adapter_model.safetensors")
about = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": ["q_proj"], "bias": "none"}
(directory / "adapter_config.json").write_text(json.dumps(about))
