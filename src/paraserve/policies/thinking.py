"""The whole ``thinking`` object (type, keep, effort) as one resolved state.

The state goes into the template variables of the model's family, and only there: whether the reply starts inside
reasoning is read from the rendered prompt, so template, parser, grammar and usage cannot disagree. Precedence:
``thinking``, then ``chat_template_kwargs``, then ``reasoning_effort``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from paraserve.policies.base import Policy, PolicyContext
from paraserve.prompt.thinking import wish
from paraserve.protocol.chat import ChatCompletionRequest
from paraserve.protocol.errors import field_error, from_validation

Effort = Literal["minimal", "low", "medium", "high", "xhigh", "max"]


class ThinkingField(msgspec.Struct, frozen=True):
    """The request field of Kimi's and GLM's own APIs. Other keys in it are ignored."""

    type: Literal["enabled", "disabled", "adaptive"] = "enabled"
    keep: Literal["all"] | None = None
    effort: Effort | None = None
    clear_thinking: bool | None = None
    """GLM's spelling of ``keep``, the other way round."""

    @property
    def keeps(self) -> bool | None:
        """Whether the reasoning of earlier turns stays in the prompt; None is the template's own rule."""
        if self.keep is not None:
            return True
        return None if self.clear_thinking is None else not self.clear_thinking


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingVariables:
    """How a family's chat template spells the state. ``always``: it cannot be switched off."""

    switches: tuple[str, ...]
    keep: tuple[str, bool]
    effort: str
    efforts: tuple[str, ...] = ()
    """What the template takes, from low to high; empty is anything."""
    always: bool = False


_KIMI = ThinkingVariables(
    switches=("thinking",),
    keep=("preserve_thinking", True),
    effort="thinking_effort",
    efforts=("low", "high", "max"),
)
_GLM = ThinkingVariables(switches=("enable_thinking",), keep=("clear_thinking", False), effort="reasoning_effort")
_OTHER = ThinkingVariables(
    switches=("enable_thinking", "thinking"), keep=("preserve_thinking", True), effort="reasoning_effort"
)
_ALWAYS = ("kimi-k3", "kimi-k2.7", "kimi-k2-thinking", "glm-5.3")
_NEAREST = {"minimal": "low", "medium": "high", "xhigh": "max"}
"""As Kimi's own API runs the efforts that its templates do not know."""


def model_thinking(context: PolicyContext) -> ThinkingVariables:
    """The variables of the served model, by its path."""
    path = context.model_path.lower().replace("_", "-")
    family = _KIMI if "kimi" in path else _GLM if "glm" in path else _OTHER
    return dataclasses.replace(family, always=any(word in path for word in _ALWAYS))


def thinking_object(request: ChatCompletionRequest, context: PolicyContext) -> ChatCompletionRequest:
    """Put the resolved state into ``chat_template_kwargs``, and take a ``reasoning_effort`` that lost out of the way.

    Raises:
        RequestError: an unknown type, keep or effort, a switch that is no boolean, or thinking switched off on a model
            that always thinks.
    """
    variables = model_thinking(context)
    kwargs = request.chat_template_kwargs or {}
    field = _thinking_field(request.thinking)
    enabled = _enabled(request, field, variables)
    resolved: dict[str, Any] = {} if enabled is None else dict.fromkeys(variables.switches, enabled)
    if field is not None and field.keeps is not None:
        name, kept = variables.keep
        resolved[name] = field.keeps is kept
    effort, reasoning_effort = _effort(request, field, enabled, variables)
    if effort is not None:
        resolved[variables.effort] = effort
    said = all(type(kwargs.get(name)) is type(value) and kwargs[name] == value for name, value in resolved.items())
    if said and reasoning_effort == request.reasoning_effort:
        return request
    return msgspec.structs.replace(
        request, chat_template_kwargs={**kwargs, **resolved}, reasoning_effort=reasoning_effort
    )


def _thinking_field(value: Any) -> ThinkingField | None:
    try:
        return msgspec.convert(value, ThinkingField | None)
    except msgspec.ValidationError as error:
        raise from_validation(error, "thinking") from None


def _enabled(request: ChatCompletionRequest, field: ThinkingField | None, variables: ThinkingVariables) -> bool | None:
    """None: the request leaves it to the model."""
    if field is not None:
        asked: tuple[bool, str] | None = (field.type != "disabled", "thinking.type")
    else:
        asked = wish(request.chat_template_kwargs or {}, request.reasoning_effort, variables.switches)
    if asked is None:
        return None
    enabled, param = asked
    if variables.always and not enabled:
        raise field_error(param, "this model always thinks; it cannot be switched off")
    return enabled


def _effort(
    request: ChatCompletionRequest, field: ThinkingField | None, enabled: bool | None, variables: ThinkingVariables
) -> tuple[str | None, str | None]:
    """The value for the family's variable, if it needs to be set, and what stays in ``reasoning_effort``."""
    sent = request.reasoning_effort
    if enabled is False:
        return None, None
    if field is not None and field.effort is not None:
        return _nearest(field.effort, variables), None
    if sent is None or sent == "none":
        return None, None
    if variables.effort == "reasoning_effort":
        return None, sent
    chosen = (request.chat_template_kwargs or {}).get(variables.effort)
    return (None if chosen is not None else _nearest(sent, variables)), None


def _nearest(effort: str, variables: ThinkingVariables) -> str:
    return effort if not variables.efforts or effort in variables.efforts else _NEAREST[effort]


POLICY = Policy(
    setting="openai_thinking_object",
    summary="The whole thinking object (type, keep, effort) of a chat request is understood, on every model.",
    apply=thinking_object,
)
