"""Declaring options once and reading them from a command line, the environment and a file.

Knows nothing of the server: it works for any frozen dataclass whose fields are made with `setting`.
"""

from paraserve.options.declare import ConfigurationError, Option, options_of, setting
from paraserve.options.sources import Given, read_arguments, read_environment, read_file

__all__ = [
    "ConfigurationError",
    "Given",
    "Option",
    "options_of",
    "read_arguments",
    "read_environment",
    "read_file",
    "setting",
]
