"""Every family's description. A new family is a page of data here, and nothing anywhere else."""

from paraserve.formats.families import coder, deepseek, glm, kimi, listed, others, qwen, tagged
from paraserve.formats.spec import PLAIN, Format

_MODULES = (glm, kimi, qwen, coder, deepseek, others, listed, tagged)

FORMATS = (*(made for module in _MODULES for made in vars(module).values() if isinstance(made, Format)), PLAIN)
