"""Stands in for SGLang's compiled kernels on a CPU: ``scripts/e2e-sglang.sh`` puts it into SGLang's environment.

Of all of them the path of ``--attention-backend torch_native`` calls one. Never computes anything else.
"""

from __future__ import annotations

from typing import Any, NoReturn


def assign_req_to_token_pool_cpu(rows: Any, pool: Any, starts: Any, ends: Any, places: Any, *_: Any) -> None:
    """Writes each request's new places in the KV cache into its row, from its start to its end."""
    at = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        pool[row, start:end] = places[at : at + end - start].to(pool.dtype)
        at += end - start


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def absent(*_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(name)

    return absent
