"""The reference pages say what the code has: nothing missing, nothing made up."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from paraserve.api.app import ROUTES
from paraserve.api.pages import page_routes
from paraserve.settings import ServerSettings

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SOURCES = [path.read_text() for path in (ROOT / "src").rglob("*.py")]

_CODE_PATTERNS = (
    r'code="([a-z_]+)"',
    r'code: str = "([a-z_]+)"',
    r'EngineError\(\s*[\w.]+,\s*"([a-z_]+)"',
    r'PromptError\((?:[^()]|\([^()]*\))*?"((?:template|unsupported|no_chat)_[a-z_]+)"\s*\)',
    r'codes? = \{404: "([a-z_]+)"',
    r'404: "[a-z_]+", 405: "([a-z_]+)"',
    r'[A-Z_]+ = "((?:context_length_exceeded|model_not_found))"',
)


def codes_in_source() -> set[str]:
    return {code for text in SOURCES for pattern in _CODE_PATTERNS for code in re.findall(pattern, text)}


def test_every_error_code_has_a_row_and_every_row_a_code() -> None:
    rows = [line.split("|")[2] for line in (DOCS / "errors.md").read_text().splitlines() if line.startswith("| ")]
    documented = {code for row in rows for code in re.findall(r"`([a-z_]+)`", row)} - {"code"}
    assert codes_in_source() - documented == set(), "without a row in docs/errors.md"
    assert documented - codes_in_source() == set(), "rows without a code"


def test_every_endpoint_is_listed() -> None:
    page = (DOCS / "api.md").read_text()
    for route in [*ROUTES, *page_routes(ServerSettings())]:
        path = route.path.replace("{model:path}", "{id}").removeprefix("/v1")
        for method in (route.methods or set()) - {"HEAD"}:
            assert re.search(rf"`{method} (?:/v1)?{re.escape(path)}`", page), f"{method} {route.path}"


@pytest.mark.parametrize("page", sorted([*DOCS.glob("*.md"), *ROOT.glob("*.md")]), ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text())
    missing = [link for link in links if not (page.parent / link).exists()]
    assert missing == []


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text()
    assert [page.name for page in DOCS.glob("*.md") if page.name not in index and page.name != "README.md"] == []


def test_every_dependency_is_named_with_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[>=\[]", dependency)[0] for dependency in project["dependencies"]}
    page = (DOCS / "architecture.md").read_text()
    section = page[page.index("## What it is built on") :]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    assert [name for name in names if not any(re.search(rf"\b{name}\b", row.split("|")[1]) for row in rows)] == []
