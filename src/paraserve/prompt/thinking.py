"""What a request and the server's defaults ask of a template's reasoning: one set of template kwargs.

Never renders. One invariant: a request's own kwargs win over its effort, and both over the server's defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paraserve.prompt.capabilities import EFFORTS, TemplateCapabilities, ThinkingSwitch
from paraserve.prompt.errors import PromptError
from paraserve.protocol.chat import ChatCompletionRequest
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import field_error

SWITCH_NAMES = frozenset({"enable_thinking", "thinking"})
"""Names under which clients turn reasoning on and off, whatever the template at hand reads."""

NO_REASONING = ("none", "no_think")
PREFERRED_EFFORTS = ("medium", "high", "low", "minimal", "xhigh", "max")
"""Where effort is the only switch, and has to be on."""


@dataclass(frozen=True, slots=True)
class ResolvedKwargs:
    variables: Mapping[str, Any]
    requested: bool | None = None
    """Reasoning was asked for (True), refused (False) or not mentioned."""
    effort: str | None = None
    effort_unused: bool = False
    """The request has an effort that neither the template nor a switch of its reasoning is told."""


@dataclass(frozen=True, slots=True)
class ThinkingModes:
    """Template kwargs that turn reasoning on (the first that works is taken), and those that turn it off."""

    on: Sequence[Mapping[str, Any]] = ()
    off: Mapping[str, Any] | None = None


def wish(kwargs: Mapping[str, Any], effort: str | None, names: Sequence[str]) -> tuple[bool, str] | None:
    """Whether reasoning is asked for, whatever the template, and the field that says so; None: it is left to the model.

    Args:
        effort: ``none`` is a wish, where no switch among the kwargs is another.
        names: of the switches that count; the first that is there wins.

    Raises:
        RequestError: a switch is no boolean.
    """
    for name in names:
        if (value := kwargs.get(name)) is not None:
            param = f"chat_template_kwargs.{name}"
            enabled = as_boolean(value)
            if enabled is None:
                raise field_error(param, "must be true or false")
            return enabled, param
    return (False, "reasoning_effort") if effort == "none" else None


def as_boolean(value: Any) -> bool | None:
    """Booleans that arrive as text or numbers: in a template the text ``false`` would be true. None: it is neither."""
    if isinstance(value, str):
        return {"true": True, "1": True, "false": False, "0": False}.get(value.lower())
    return bool(value) if isinstance(value, int) else None


def thinking_modes(takes: TemplateCapabilities) -> ThinkingModes:
    """How a template's reasoning is switched, whatever the request asked for."""
    if takes.thinking_switches:
        switches = takes.thinking_switches
        on = {switch.name: switch.on for switch in switches}
        return ThinkingModes((on,), {switch.name: switch.off for switch in switches})
    efforts = sorted(set(takes.efforts).difference(NO_REASONING), key=PREFERRED_EFFORTS.index)
    return ThinkingModes([{takes.effort_variable: effort} for effort in efforts] if takes.effort_variable else ())


def nearest_effort(effort: str, takes: TemplateCapabilities) -> str:
    """The effort, or the one nearest to it that the template takes, the higher of two: for APIs whose clients send
    efforts that no model here has."""
    efforts = [value for value in EFFORTS if value not in NO_REASONING]
    taken = [value for value in efforts if value in takes.efforts]
    if effort not in efforts or not taken:
        return effort
    wanted = efforts.index(effort)
    return min(taken, key=lambda value: (abs(efforts.index(value) - wanted), -efforts.index(value)))


def resolve_kwargs(
    defaults: Mapping[str, Any], given: Mapping[str, Any], effort: str | None, takes: TemplateCapabilities
) -> ResolvedKwargs:
    """The template's variables.

    Raises:
        PromptError: the effort is one that the template does not take.
    """
    switches = {switch.name for switch in takes.thinking_switches} | SWITCH_NAMES
    from_effort = _from_effort(effort, given, takes)
    asked = {**from_effort, **given}
    if switches & asked.keys():
        # A template may read several switches: a default under one name must not meet a wish under another.
        defaults = {name: value for name, value in defaults.items() if name not in switches}
    variables = {**defaults, **asked}
    requested: bool | None = None
    for switch in takes.thinking_switches:
        if switch.name in variables:
            variables[switch.name] = _switch_value(variables[switch.name], switch)
            requested = variables[switch.name] == switch.on
    if requested is None:
        requested = _asked_under_another_name(variables, takes)
    used = variables.get(takes.effort_variable) if takes.effort_variable else None
    if requested is None and used in NO_REASONING:
        requested = False
    told = used == effort or any(variables[name] == value for name, value in from_effort.items())
    return ResolvedKwargs(
        variables, requested, used if isinstance(used, str) else None, effort is not None and not told
    )


def unused_wishes(request: ChatCompletionRequest, requested: bool | None) -> Iterator[str]:
    """Names for the fields of a request that ask for thinking, or for none, and have no effect.

    Args:
        requested: what the template was told.
    """
    kwargs, wish = request.chat_template_kwargs or {}, request.reasoning
    field = request.thinking
    if not kwargs and wish is field is request.enable_thinking is None:
        return
    if isinstance(field, Mapping):
        field = field.get("type") != "disabled"
    switches = {
        "thinking": (field, kwargs.get("thinking")),
        "enable_thinking": (
            request.enable_thinking,
            None if wish and wish.switch is not None else kwargs.get("enable_thinking"),
        ),
        "reasoning": (wish.switch if wish is not None and wish.asked_effort is None else None,),
    }
    for name, asked in switches.items():
        if any(wanted is not None and wanted is not requested for wanted in map(as_boolean, asked)):
            yield f"{name}_not_used"
    if wish is not None:
        yield from (f"reasoning_{name}_not_used" for name in ("exclude", "max_tokens") if getattr(wish, name))


def _from_effort(effort: str | None, given: Mapping[str, Any], takes: TemplateCapabilities) -> dict[str, Any]:
    """``reasoning_effort`` of the request as the template spells it."""
    if effort is None or takes.effort_variable in given:
        return {}
    if effort == "none" and takes.thinking_switches:
        return {switch.name: switch.off for switch in takes.thinking_switches}
    if takes.effort_variable is None:
        return {}
    value = "no_think" if effort == "none" and "none" not in takes.efforts else effort
    if takes.efforts and value not in takes.efforts and (value in EFFORTS or effort == "none"):
        known = ", ".join(name for name in takes.efforts if name != "no_think")
        raise PromptError(
            f"reasoning_effort: this model takes {known}", "reasoning_effort", ErrorCode.UNSUPPORTED_VALUE
        )
    return {takes.effort_variable: value}


def _switch_value(value: Any, switch: ThinkingSwitch) -> Any:
    """The template's own value for on and off."""
    on = as_boolean(value)
    return value if on is None else switch.on if on else switch.off


def _asked_under_another_name(variables: dict[str, Any], takes: TemplateCapabilities) -> bool | None:
    """A client that says ``enable_thinking`` to a template that reads ``thinking`` means it."""
    for name in SWITCH_NAMES & variables.keys():
        for switch in takes.thinking_switches:
            value = _switch_value(variables[name], switch)
            if value in (switch.on, switch.off):
                variables[switch.name] = value
                return bool(value == switch.on)
    return None
