"""Explicit tool choices that are served as ``auto``.

A deployment gives up the guarantee of a call where forcing one harms the model; the response header says that it was
given up. An absent ``tool_choice`` stays absent.
"""

from __future__ import annotations

import msgspec

from paraserve.policies.base import Policy, PolicyContext
from paraserve.protocol.chat import ChatCompletionRequest


def _auto(request: ChatCompletionRequest) -> ChatCompletionRequest:
    return msgspec.structs.replace(request, tool_choice="auto")


def force_auto(request: ChatCompletionRequest, context: PolicyContext) -> ChatCompletionRequest:
    """Any explicit choice becomes ``auto``."""
    return request if request.tool_choice in (None, "auto") else _auto(request)


def required_as_auto(request: ChatCompletionRequest, context: PolicyContext) -> ChatCompletionRequest:
    """``required`` becomes ``auto``."""
    return _auto(request) if request.tool_choice == "required" else request


def named_as_auto(request: ChatCompletionRequest, context: PolicyContext) -> ChatCompletionRequest:
    """A named tool becomes ``auto``."""
    choice = request.tool_choice
    return _auto(request) if isinstance(choice, dict) and choice.get("type") != "allowed_tools" else request


FORCE_AUTO = Policy(
    setting="openai_force_tool_choice_auto",
    summary="Every explicit tool_choice of a chat request is served as auto.",
    apply=force_auto,
)

GLM_NAMED_AUTO = Policy(
    setting="openai_glm_named_tool_choice_auto",
    summary="On GLM models a named tool_choice is served as auto, as GLM compat does with required.",
    model="glm",
    apply=named_as_auto,
)
