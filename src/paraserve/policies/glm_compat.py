"""What clients of GLM deployments rely on.

``tool_choice: "required"`` is served as ``auto`` (chat), an input that does not fit is answered 413 (chat and
completions), and chat usage always carries ``completion_tokens_details.reasoning_tokens`` in place of the top-level
field. A named ``tool_choice`` is not part of it: see `tool_choice.GLM_NAMED_AUTO`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paraserve.policies.base import CHAT_AND_COMPLETIONS, Policy, PolicyContext
from paraserve.policies.tool_choice import required_as_auto


def _rules(context: PolicyContext) -> Mapping[str, Any]:
    return {"overflow_status": 413, "reasoning_in_details": context.endpoint == "chat"}


POLICY = Policy(
    setting="openai_glm_compat",
    summary="On GLM models: tool_choice required is served as auto, a too long input is 413, chat usage always has "
    "completion_tokens_details.reasoning_tokens.",
    endpoints=CHAT_AND_COMPLETIONS,
    model="glm",
    apply=required_as_auto,
    rules=_rules,
)
