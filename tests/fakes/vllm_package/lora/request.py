"""The names, the order and the defaults of vLLM 0.32's fields, and what its constructor refuses."""

from __future__ import annotations

import msgspec


class LoRARequest(msgspec.Struct, omit_defaults=True, array_like=True):
    lora_name: str
    lora_int_id: int
    lora_path: str = ""
    base_model_name: str | None = msgspec.field(default=None)
    load_inplace: bool = False
    is_3d_lora_weight: bool = False

    def __post_init__(self) -> None:
        if self.lora_int_id < 1 or not self.lora_path:
            raise ValueError("id must be > 0, and lora_path not empty")
