"""What a policy is: an opt-in change of what a request means or how its reply looks.

A policy has a server argument, says for which requests it holds, and then rewrites the request, sets rules that later
stages read, or both. It must never do I/O or keep state. Invariants: with its argument at the default a policy is
not in force and a request comes back as the same object; what a policy does change is on the request's
`PolicyLedger`, from where it reaches the log, the metric and the response header.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from paraserve.protocol.errors import RequestError
from paraserve.secrets import client_text
from paraserve.settings import ServerSettings

Endpoint = Literal["chat", "completions"]
CHAT: frozenset[Endpoint] = frozenset({"chat"})
CHAT_AND_COMPLETIONS: frozenset[Endpoint] = frozenset({"chat", "completions"})

RESPONSE_HEADER = "x-paraserve-policies"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyContext:
    """What a policy may look at beside the request. ``model_path`` is the path that the operator served."""

    settings: ServerSettings
    endpoint: Endpoint
    model_path: str

    def path_says(self, word: str) -> bool:
        """Whether the model path contains ``word``, whatever the case."""
        return word.lower() in self.model_path.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRules:
    """What later stages read from the policies in force. The defaults are what upstream servers do.

    A stage that lets a rule make a difference says so with `PolicyLedger.used`.
    """

    default_max_tokens: int | None = None
    """Output limit in tokens of a request that names none, capped by the room; None is all the room."""
    clamp_max_tokens: bool = False
    """Cut an output limit that is too large to the room, instead of refusing the request."""
    overflow_status: int = 400
    """HTTP status of a prompt that does not fit the context."""
    reasoning_in_details: bool = False
    """Usage always has ``completion_tokens_details.reasoning_tokens``, in place of the top-level field."""
    stream_usage: Literal["requested", "default", "last-choice"] = "requested"
    """Whether a stream ends with usage: when asked for; unless declined; likewise, and in the last choice as well."""
    preflight: bool = False
    """Hold the head of a stream until its first chunk is there."""
    preflight_seconds: float | None = None
    """The longest that the preflight holds the head; None is no bound."""
    stop_in_reasoning: bool = True
    """Whether stop strings end a reply inside its reasoning."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that a policy changed: a field of the request as a client would write it, or a rule's name."""

    policy: str
    field: str
    before: Any
    after: Any


class PolicyLedger:
    """What policies have changed about one request and its reply.

    Args:
        owners: rule name to the policy that set it.
    """

    __slots__ = ("_owners", "changes")

    def __init__(self, owners: Mapping[str, str]) -> None:
        self._owners = owners
        self.changes: list[Change] = []

    def used(self, rule: str, before: Any, after: Any) -> None:
        """Note that a field of `ReplyRules` made a difference. Does nothing where no policy set that rule, or it
        changed nothing."""
        policy = self._owners.get(rule)
        if policy is not None and before != after:
            self.changes.append(Change(policy, rule, before, after))

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of the policies that changed something, each once, in the order of their first change."""
        return tuple(dict.fromkeys(change.policy for change in self.changes))

    @property
    def headers(self) -> dict[str, str]:
        """The response header, or nothing."""
        return {RESPONSE_HEADER: ", ".join(self.policies)} if self.changes else {}

    def log(self, request_id: str) -> None:
        """Write every change at debug, values cut to a line's length."""
        if not _log.isEnabledFor(logging.DEBUG):
            return
        for change in self.changes:
            before, after = _shown(change.before), _shown(change.after)
            _log.debug("%s: policy %s: %s: %s -> %s", request_id, change.policy, change.field, before, after)


def _shown(value: Any) -> str:
    text = client_text(repr(value))
    return text if len(text) <= 100 else text[:97] + "..."


Rewrite = Callable[[Any, PolicyContext], Any]
"""From a request to a request: the same object when there is nothing to change. May raise `RequestError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Args:
    setting: the field of `ServerSettings` that switches it on; the policy's name and flag are derived from it.
    summary: what it does, in one line.
    endpoints: where it holds.
    model: a word that the model path must contain (case does not matter); empty is every model.
    apply: rewrites a chat request; other endpoints have nothing to rewrite.
    rules: fields of `ReplyRules` that it sets.
    """

    setting: str
    summary: str
    endpoints: frozenset[Endpoint] = CHAT
    model: str = ""
    apply: Rewrite | None = None
    rules: Callable[[PolicyContext], Mapping[str, Any]] = field(default=lambda context: {})

    @property
    def name(self) -> str:
        """As in the response header: the flag without its prefix."""
        return self.setting.removeprefix("openai_").replace("_", "-")

    @property
    def flag(self) -> str:
        return "--" + self.setting.replace("_", "-")

    def is_on(self, settings: ServerSettings) -> bool:
        """Whether the operator switched it on, for whatever model."""
        return bool(getattr(settings, self.setting) != _defaults[self.setting])

    def when(self, context: PolicyContext) -> bool:
        """Whether it is in force for the requests of this context."""
        return self.is_on(context.settings) and context.endpoint in self.endpoints and context.path_says(self.model)


_defaults: Mapping[str, Any] = {entry.name: entry.default for entry in dataclasses.fields(ServerSettings)}


class EndpointPolicies:
    """The policies in force for one endpoint of one server, in their order. Resolved once, at start."""

    def __init__(self, policies: Sequence[Policy], context: PolicyContext) -> None:
        self.in_force = tuple(policy for policy in policies if policy.when(context))
        set_by = {policy.name: policy.rules(context) for policy in self.in_force}
        self.rules = ReplyRules(**{rule: value for rules in set_by.values() for rule, value in rules.items()})
        self._owners = {rule: name for name, rules in set_by.items() for rule in rules}
        rewriting = self.in_force if context.endpoint == "chat" else ()
        self._rewriting = [(policy.name, policy.apply) for policy in rewriting if policy.apply is not None]
        self._context = context

    def apply(self, request: Any) -> tuple[Any, PolicyLedger]:
        """The request as the policies in force want it, and what they changed.

        Raises:
            RequestError: a policy refuses the request; its headers name the policy.
        """
        ledger = PolicyLedger(self._owners)
        for name, rewrite in self._rewriting:
            try:
                rewritten = rewrite(request, self._context)
            except RequestError as error:
                error.headers[RESPONSE_HEADER] = ", ".join([*ledger.policies, name])
                raise
            if rewritten is not request:
                ledger.changes += [Change(name, *found) for found in differences(request, rewritten)]
                request = rewritten
        return request, ledger


def differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(field, from, to) for every leaf in which two values differ; parts that are the same object are not looked at."""
    if before is after:
        return
    if isinstance(before, msgspec.Struct) and type(before) is type(after):
        for name in before.__struct_fields__:
            yield from differences(getattr(before, name), getattr(after, name), f"{path}.{name}" if path else name)
    elif isinstance(after, dict) and (before is None or isinstance(before, dict)):
        old = before or {}
        for key in {**old, **after}:
            yield from differences(old.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, f"{path}[{i}]")
    elif type(before) is not type(after) or before != after:
        yield path, before, after
