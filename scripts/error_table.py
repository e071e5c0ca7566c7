"""Writes the table of error codes into docs/errors.md."""

from __future__ import annotations

import re
from pathlib import Path

from paraserve.protocol.error_codes import ErrorCode

PAGE = Path(__file__).resolve().parents[1] / "docs" / "errors.md"
HEAD = "| Status | `code` | Cause | What helps |\n|---|---|---|---|\n"


def page(text: str) -> str:
    """The page with its table as the code has it."""
    rows = (
        f"| {', '.join(map(str, code.statuses))} | `{code}` | {code.cause} | {code.remedy} |\n" for code in ErrorCode
    )
    return re.sub(re.escape(HEAD) + r"(?:\|.*\n)*", lambda _: HEAD + "".join(rows), text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
