"""What the operator can choose: declared in tables, read from three places, checked as a whole."""

from paraserve.settings.load import LoadedSettings, load_settings
from paraserve.settings.policies import PRESETS
from paraserve.settings.server import ServerSettings

__all__ = ["PRESETS", "LoadedSettings", "ServerSettings", "load_settings"]
