"""paraserve: an OpenAI-compatible serving layer for open-weight models."""

__version__ = "0.1.0"
