"""Opt-in changes of what requests mean and replies look like, each behind its own server argument."""

from paraserve.policies.base import Change, EndpointPolicies, PolicyLedger, ReplyRules
from paraserve.policies.table import POLICIES, Policies, PolicyState

__all__ = ["POLICIES", "Change", "EndpointPolicies", "Policies", "PolicyLedger", "PolicyState", "ReplyRules"]
