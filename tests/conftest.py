"""Fixtures that every part of the suite shares."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# How fast an example runs says something about the machine, not about the code.
settings.register_profile("paraserve", deadline=None)
settings.load_profile("paraserve")


@pytest.fixture(scope="session")
def shared_assets() -> Path:
    """Real templates, tokenizers and raw outputs that are not part of the project (`PARASERVE_SHARED_ASSETS`)."""
    default = Path(__file__).resolve().parents[2] / "shared" / "assets"
    path = Path(os.environ.get("PARASERVE_SHARED_ASSETS", default))
    if not path.is_dir():
        pytest.skip(f"shared assets are not here ({path}); set PARASERVE_SHARED_ASSETS to run this test")
    return path
