"""Every option of the server, declared once.

The tables beside this module are the only place that knows an option's name, type, default, help and group: the command
line, the environment, configuration files, ``--help`` and ``docs/configuration.md`` come from them. They must never
know what an option does.
"""

from __future__ import annotations

from dataclasses import dataclass

from paraserve.settings.policies import PolicySettings
from paraserve.settings.replies import ReplySettings
from paraserve.settings.serving import ServingSettings


# A dataclass has the fields of its last base first: this is the help's order, backwards.
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(PolicySettings, ReplySettings, ServingSettings):
    """What the operator chose."""
