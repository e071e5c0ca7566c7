"""Options of the policies, and the presets that switch several on. See `paraserve.settings.server`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from paraserve.settings.declare import Count, Seconds, setting

POLICIES = "Policies (all off by default; see docs/policies.md)"


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """One or more for each row of `paraserve.policies.table`."""

    openai_compat: Literal["none", "para"] = setting(
        "none",
        group=POLICIES,
        help="A preset. para switches on the six policies that follow it here, with a default of 32768 tokens; a value "
        "given beside it wins.",
    )
    openai_chat_default_max_tokens: Count = setting(
        0,
        group=POLICIES,
        help="Output limit of a chat request that names none, capped by what the context has left; 0 is off.",
    )
    openai_force_tool_choice_auto: bool = setting(
        False, group=POLICIES, help="Serve every explicit tool_choice of a chat request as auto."
    )
    openai_kimi_compat: bool = setting(
        False,
        group=POLICIES,
        help="On models whose path says kimi: read the thinking field and apply Kimi's fixed sampling values to chat.",
    )
    openai_glm_compat: bool = setting(
        False,
        group=POLICIES,
        help="On models whose path says glm: tool_choice required is served as auto, a too long input is answered 413, "
        "chat usage always carries completion_tokens_details.reasoning_tokens.",
    )
    openai_flatten_tool_role_text_content: bool = setting(
        False, group=POLICIES, help="Join a tool message's list of text parts into one string."
    )
    openai_streaming_error_preflight: bool = setting(
        False,
        group=POLICIES,
        help="Hold a stream's head until its first chunk is there, so that an early error has its true status.",
    )
    openai_streaming_error_preflight_seconds: Seconds = setting(
        0.0,
        group=POLICIES,
        help="The longest that the preflight holds the head; after that the stream starts. 0 is no bound.",
    )
    openai_kimi_sampling: Literal["override", "fill", "reject"] = setting(
        "override",
        group=POLICIES,
        help="What Kimi compat does with sampling values: replace all, fill in those left out, or answer 400 to wrong "
        "ones.",
    )
    openai_kimi_tool_call_ids: bool = setting(
        False,
        group=POLICIES,
        help="On models whose path says kimi: write the tool-call ids of the history as functions.name:index into the "
        "prompt.",
    )
    openai_glm_named_tool_choice_auto: bool = setting(
        False, group=POLICIES, help="On models whose path says glm: serve a named tool_choice as auto, too."
    )
    openai_thinking_object: bool = setting(
        False,
        group=POLICIES,
        help="Read the whole thinking object (type, keep, effort) of chat requests, and answer 400 to an unknown type.",
    )
    openai_stream_usage: Literal["requested", "default", "last-choice"] = setting(
        "requested",
        group=POLICIES,
        help="When a stream ends with usage: if stream_options asks; unless it declines; likewise, and in the last "
        "choice as well.",
    )
    openai_max_tokens_overflow: Literal["reject", "clamp"] = setting(
        "reject",
        group=POLICIES,
        help="What an output limit larger than the context has left gets: 400, or as much as there is room for.",
    )
    openai_stop_after_reasoning: bool = setting(
        False, group=POLICIES, help="Do not look for stop strings inside reasoning."
    )


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "para": {
        "openai_chat_default_max_tokens": 32768,
        "openai_force_tool_choice_auto": True,
        "openai_kimi_compat": True,
        "openai_glm_compat": True,
        "openai_flatten_tool_role_text_content": True,
        "openai_streaming_error_preflight": True,
    },
}
"""What ``openai_compat`` stands for: values that the source which names it does not give itself."""
