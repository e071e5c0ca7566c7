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

ERRORS = {"RequestError": ("message",), "EngineError": ("status", "code"), "PromptError": ("message", "param", "code")}
"""What is raised with a code, and the names of what it is given without one."""


def errors_in_source() -> Iterator[tuple[str, dict[str, ast.expr]]]:
    """Where an error is made, and what it is given."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and name in ERRORS:
                given = dict(zip(ERRORS[name], node.args, strict=False))
                yield (
                    f"{path.stem}:{node.lineno}",
                    given | {str(keyword.arg): keyword.value for keyword in node.keywords},
                )


def test_a_code_is_a_name_of_the_table_and_never_a_word() -> None:
    assert [where for where, given in errors_in_source() if isinstance(given.get("code"), ast.Constant)] == []


def test_a_code_comes_with_a_status_of_its_row() -> None:
    found = [
        (where, ErrorCode[code.attr], status.value)
        for where, given in errors_in_source()
        if isinstance(code := given.get("code"), ast.Attribute) and isinstance(code.value, ast.Name)
        if code.value.id == "ErrorCode" and isinstance(status := given.get("status", ast.Constant(400)), ast.Constant)
    ]
    assert len(found) > 50
    assert [(where, code, status) for where, code, status in found if status not in code.statuses] == []


def test_every_code_of_the_table_is_raised() -> None:
    text = "".join(path.read_text() for path in SOURCES if path.name != "error_codes.py")
    assert [code for code in ErrorCode if f"ErrorCode.{code.name}" not in text] == []


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
