"""What every part of the suite shares: fixtures, and which tests are heavy.

Heavy is what starts real servers, real engines or many processes, long fuzz, whole vocabularies of real models, and the
families of a kind beyond the first (`tests/formats/formats_kit.py`): the second stage, `./test --all`. The rest is run
before every commit.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
HEAVY = [
    TESTS / name
    for name in (
        "e2e",
        "engines/test_embedded_server.py",
        "engines/test_engine_child.py",
        "engines/test_gguf_against_llama_cpp.py",
        "engines/test_llama_cpp.py",
        "formats/test_format_fuzz.py",
    )
]
"""Directories and modules of which every test is heavy. A single one says it by ``@pytest.mark.heavy``."""

# How fast an example is made or runs says something about the machine, not about the code. The same examples each time:
# what fails has to do with what was changed (the fuzz of `formats` draws new ones where it is asked for more).
settings.register_profile(
    "paraserve",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("paraserve")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    assert all(place.exists() for place in HEAVY)
    for item in items:
        if any(item.path.is_relative_to(heavy) for heavy in HEAVY):
            item.add_marker(pytest.mark.heavy)


@pytest.fixture(scope="session")
def shared_assets() -> Path:
    """Real templates, tokenizers and raw outputs that are not part of the project (`PARASERVE_SHARED_ASSETS`)."""
    default = TESTS.parents[1] / "shared" / "assets"
    path = Path(os.environ.get("PARASERVE_SHARED_ASSETS", default))
    if not path.is_dir():
        pytest.skip(f"shared assets are not here ({path}); set PARASERVE_SHARED_ASSETS to run this test")
    return path
