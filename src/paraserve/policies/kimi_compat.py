"""What clients of Kimi deployments rely on: the ``thinking`` switch and fixed sampling values.

Source of the values: the parameter table of the vendor's public verifier (top_p 0.95, both penalties 0, n 1;
temperature 1.0 while thinking and 0.6 when not). The verifier sends right, omitted and wrong values and wants wrong
ones refused; ``reject`` does that, ``override`` (the default) and ``fill`` serve them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from paraserve.policies.base import Policy, PolicyContext
from paraserve.policies.thinking import model_thinking
from paraserve.prompt.thinking import wish
from paraserve.protocol.chat import ChatCompletionRequest
from paraserve.protocol.errors import field_error

FIXED_SAMPLING: dict[str, float] = {"top_p": 0.95, "presence_penalty": 0.0, "frequency_penalty": 0.0, "n": 1}
TEMPERATURES = {True: (1.0, 0.6, 0.0), False: (0.6,)}
"""Allowed by the state of thinking; the first one is what an omitted temperature means in ``reject``."""
_SWITCHES = ("thinking", "enable_thinking")


def kimi_compat(request: ChatCompletionRequest, context: PolicyContext) -> ChatCompletionRequest:
    """Set the ``thinking`` variable of the template, and the sampling values by the mode in force.

    Raises:
        RequestError: ``thinking`` is no object, or a sampling value is wrong in ``reject``.
    """
    request = _with_thinking(request)
    values = _sampling(request, context)
    if all(getattr(request, name) == value for name, value in values.items()):
        return request
    return msgspec.structs.replace(request, **values)


def _with_thinking(request: ChatCompletionRequest) -> ChatCompletionRequest:
    thinking = request.thinking
    if thinking is None:
        return request
    if not isinstance(thinking, dict):
        raise field_error("thinking", "expected an object with a type")
    enabled = thinking.get("type") != "disabled"
    kwargs = request.chat_template_kwargs or {}
    if kwargs.get("thinking") is enabled:
        return request
    return msgspec.structs.replace(request, chat_template_kwargs={**kwargs, "thinking": enabled})


def _sampling(request: ChatCompletionRequest, context: PolicyContext) -> dict[str, Any]:
    """Values to set."""
    mode = context.settings.openai_kimi_sampling
    if mode == "override":
        return dict(FIXED_SAMPLING)
    allowed: dict[str, tuple[float, ...]] = {name: (value,) for name, value in FIXED_SAMPLING.items()}
    thinking = _is_thinking(request, context)
    if mode == "reject":
        allowed["temperature"] = TEMPERATURES[thinking]
        for name, values in allowed.items():
            _check(name, getattr(request, name), values, thinking)
    return {name: values[0] for name, values in allowed.items() if getattr(request, name) is None}


def _check(name: str, sent: float | None, allowed: tuple[float, ...], thinking: bool) -> None:
    if sent is None or sent in allowed:
        return
    values = " or ".join(f"{value:g}" for value in sorted(allowed))
    state = "" if name != "temperature" else " while thinking" if thinking else " when not thinking"
    raise field_error(name, f"must be {values} for this model{state}")


def _is_thinking(request: ChatCompletionRequest, context: PolicyContext) -> bool:
    """The state that the template will see: thinking is on unless the request or the server switched it off."""
    if model_thinking(context).always:
        return True
    asked = wish(request.chat_template_kwargs or {}, request.reasoning_effort, _SWITCHES)
    asked = asked or wish(context.settings.chat_template_kwargs, None, _SWITCHES)
    return asked is None or asked[0]


POLICY = Policy(
    setting="openai_kimi_compat",
    summary="On Kimi models: the chat field thinking is understood and the fixed sampling values apply.",
    model="kimi",
    apply=kimi_compat,
)
