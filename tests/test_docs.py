"""The reference pages say what the code has: nothing missing, nothing made up."""

from __future__ import annotations

import ast
import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from paraserve.api.endpoints import ENDPOINTS
from paraserve.protocol.error_codes import ErrorCode

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SOURCES = sorted((ROOT / "src").rglob("*.py"))

ERRORS = {"RequestError": None, "EngineError": 1, "PromptError": 2}
"""What is raised with a code, and the code's place among what has no name."""

SPELLED_OUT = {"chat", "engine", "refusals", "remote"}
"""Modules that other hands hold today: their codes are words of the table, not yet its names."""


def codes_in_source() -> Iterator[tuple[str, ast.expr]]:
    """The module and the expression of every code that an error is made with."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node.func, "id", None) if isinstance(node, ast.Call) else None
            if isinstance(node, ast.Call) and name in ERRORS:
                yield from ((path.stem, keyword.value) for keyword in node.keywords if keyword.arg == "code")
                yield from ((path.stem, code) for at, code in enumerate(node.args) if at == ERRORS[name])


def test_a_code_is_a_name_of_the_table() -> None:
    literals = [(module, code.value) for module, code in codes_in_source() if isinstance(code, ast.Constant)]
    assert {code for _, code in literals} - set(ErrorCode) == set(), "codes outside the table"
    assert {module for module, _ in literals} - SPELLED_OUT == set(), "a word where a name belongs"


def test_every_code_of_the_table_is_raised() -> None:
    text = "".join(path.read_text() for path in SOURCES if path.name != "error_codes.py")
    unused = [code for code in ErrorCode if f"ErrorCode.{code.name}" not in text and f'"{code}"' not in text]
    assert unused == []


def test_the_page_of_errors_has_the_table() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "error_table.py"))["page"]
    text = (DOCS / "errors.md").read_text()
    assert page(text) == text, "python scripts/error_table.py writes it"
    assert all(f"| `{code}` |" in text for code in ErrorCode)


def test_every_endpoint_is_listed() -> None:
    page = (DOCS / "api.md").read_text()
    for endpoint in ENDPOINTS:
        path = endpoint.path.replace("{model:path}", "{id}").removeprefix("/v1")
        assert re.search(rf"`{endpoint.method} (?:/v1)?{re.escape(path)}`", page), endpoint.path


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
