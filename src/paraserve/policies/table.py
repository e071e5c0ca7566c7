"""All policies, in the order in which they are applied, and what of them is in force on a server."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from paraserve.policies import (
    default_max_tokens,
    flatten_tool_text,
    glm_compat,
    kimi_compat,
    kimi_tool_call_ids,
    limits,
    streams,
    thinking,
    tool_choice,
)
from paraserve.policies.base import Endpoint, EndpointPolicies, Policy, PolicyContext
from paraserve.settings import ServerSettings

POLICIES: tuple[Policy, ...] = (
    default_max_tokens.POLICY,
    thinking.POLICY,
    kimi_compat.POLICY,
    kimi_tool_call_ids.POLICY,
    glm_compat.POLICY,
    tool_choice.GLM_NAMED_AUTO,
    tool_choice.FORCE_AUTO,
    flatten_tool_text.POLICY,
    streams.PREFLIGHT,
    streams.STREAM_USAGE,
    limits.MAX_TOKENS_OVERFLOW,
    limits.STOP_AFTER_REASONING,
)
"""Thinking is resolved before Kimi's sampling values, which depend on it."""


class PolicyState(msgspec.Struct, frozen=True):
    """A policy as ``GET /v1/policies`` and the start-up report show it.

    ``on`` is the operator's choice; ``endpoints`` are those where it is in force, so they are empty where the served
    model is not one that the policy is for.
    """

    name: str
    flag: str
    value: bool | int | str
    on: bool
    endpoints: list[str]
    summary: str


class PolicyList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[PolicyState]


class Policies:
    """The policies of one server. Built at start from the settings and the path of the served model."""

    def __init__(self, settings: ServerSettings, model_path: str) -> None:
        self._settings = settings
        self._endpoints: dict[str, EndpointPolicies] = {
            endpoint: EndpointPolicies(
                POLICIES, PolicyContext(settings=settings, endpoint=endpoint, model_path=model_path)
            )
            for endpoint in get_args(Endpoint)
        }

    def on(self, endpoint: Endpoint) -> EndpointPolicies:
        """What is in force for requests to an endpoint."""
        return self._endpoints[endpoint]

    def states(self) -> list[PolicyState]:
        """Every policy, in order."""
        return [
            PolicyState(
                name=policy.name,
                flag=policy.flag,
                value=getattr(self._settings, policy.setting),
                on=policy.is_on(self._settings),
                endpoints=[name for name, policies in self._endpoints.items() if policy in policies.in_force],
                summary=policy.summary,
            )
            for policy in POLICIES
        ]
