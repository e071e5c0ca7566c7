"""Every family's description. A new family is a page of data here, and nothing anywhere else."""

from paraserve.formats.families import coder, deepseek, glm, kimi, listed, others, qwen, tagged
from paraserve.formats.spec import PLAIN

FORMATS = (
    *glm.FORMATS,
    *kimi.FORMATS,
    *qwen.FORMATS,
    *coder.FORMATS,
    *deepseek.FORMATS,
    *others.FORMATS,
    *listed.FORMATS,
    *tagged.FORMATS,
    PLAIN,
)
