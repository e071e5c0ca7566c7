"""Imported for what it does: the kits of the tests are found, from wherever a program of this directory is started."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
