"""What a log line looks like, and what never gets onto one."""

from __future__ import annotations

import importlib.util
import io
import json
import logging
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraserve.observability.logs import FIELDS, LineFormatter, configure_logging
from paraserve.serving.progress import Progress
from paraserve.settings import ServerSettings


def record(message: str = "said", fields: dict[str, Any] | None = None, exc_info: Any = None) -> logging.LogRecord:
    made = logging.LogRecord("paraserve.test", logging.WARNING, "f.py", 1, "%s", (message,), exc_info)
    if fields is not None:
        setattr(made, FIELDS, fields)
    return made


@given(
    st.text(), st.dictionaries(st.sampled_from(["a", "b"]), st.one_of(st.text(), st.integers(), st.lists(st.text())))
)
def test_a_record_is_one_line_whatever_is_in_it(message: str, fields: dict[str, Any]) -> None:
    text = LineFormatter(as_json=False).format(record(message, fields))
    assert text.isprintable()
    line = LineFormatter(as_json=True).format(record(message, fields))
    assert "\n" not in line
    assert json.loads(line)["event"] == message
    assert json.loads(line).items() >= fields.items()


def test_json_has_time_level_logger_event_and_fields() -> None:
    line = json.loads(LineFormatter(as_json=True).format(record("ready", {"port": 1})))
    assert line["time"].endswith("Z")
    assert (line["level"], line["logger"], line["event"], line["port"]) == ("warning", "paraserve.test", "ready", 1)


def test_text_quotes_what_would_be_read_wrongly() -> None:
    text = LineFormatter(as_json=False).format(record("ready", {"a": "x y", "b": "z", "c": 'q"', "d": ["e"], "f": ""}))
    assert text.endswith("""ready [paraserve.test] a='x y' b=z c='q"' d=['e'] f=""")


@pytest.mark.parametrize("as_json", [True, False])
def test_half_a_character_and_a_terminals_commands_are_escaped(as_json: bool) -> None:
    shown = LineFormatter(as_json=as_json).format(record("cut \ud83d \x1b[2J", {"model": "\udfff\x1b[2J"}))
    assert shown.isascii()
    assert shown.isprintable()


def test_a_stack_moves_no_cursor() -> None:
    try:
        raise ValueError("\x1b[2J\x07")
    except ValueError:
        shown = LineFormatter(as_json=False).format(record("failed", exc_info=sys.exc_info()))
    assert "ValueError: \\x1b[2J\\x07" in shown
    assert shown.replace("\n", "").isprintable()


@pytest.mark.parametrize("as_json", [True, False])
def test_lines_of_libraries_have_the_same_form(as_json: bool, root_logger: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging(ServerSettings(log_format="json" if as_json else "text"), stream)
    logging.getLogger("some.library").warning("%d requests", 3)
    line = stream.getvalue()
    assert "3 requests" in line
    assert "some.library" in line
    assert line.count("\n") == 1
    assert line.startswith("{") is as_json


def test_a_record_that_cannot_be_shown_shows_nothing_of_its_arguments(root_logger: logging.Logger) -> None:
    stream = io.StringIO()
    configure_logging(ServerSettings(), stream)
    logging.getLogger("some.library").warning("%d", "sesame-street")
    assert stream.getvalue().startswith("a log record of some.library (test_logs:")
    assert "sesame" not in stream.getvalue()


def test_colours_are_for_terminals_alone() -> None:
    assert "\x1b" in LineFormatter(as_json=False, color=True).format(record())
    assert "\x1b" not in LineFormatter(as_json=False).format(record())


@pytest.mark.parametrize(("as_json", "color"), [(True, False), (False, False), (False, True)])
def test_a_stack_is_shown_without_the_values_in_it(as_json: bool, color: bool) -> None:
    # rich, which would show them, is installed beside the tests.
    assert importlib.util.find_spec("rich") is not None

    def fails(prompt: str) -> None:
        raise RuntimeError("broken")

    try:
        fails("the text of a prompt")
    except RuntimeError:
        shown = LineFormatter(as_json=as_json, color=color).format(record("failed", exc_info=sys.exc_info()))
    assert "RuntimeError: broken" in shown
    assert "the text of" not in shown.replace('fails("the text of a prompt")', "").replace(
        json.dumps('fails("the text of a prompt")')[1:-1], ""
    )
    assert ("\n" in shown) is not as_json


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("key", ["sesame-street", 'with"quote', "back\\slash"])
def test_keys_are_blotted_out_wherever_they_are(as_json: bool, key: str) -> None:
    formatter = LineFormatter(as_json=as_json, secrets=[key])
    shown = formatter.format(record(f"got {key}", {"header": f"Bearer {key}", "nested": {"k": [key]}}))
    assert key not in shown
    assert json.dumps(key)[1:-1] not in shown
    assert shown.count("[redacted]") == 3


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def root_logger():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    logging.captureWarnings(False)
    root.handlers[:], root.level = handlers, level


@pytest.mark.parametrize(
    ("chosen", "terminal", "as_json"),
    [
        ("auto", True, False),
        ("auto", False, True),
        ("text", True, False),
        ("text", False, False),
        ("json", True, True),
        ("json", False, True),
    ],
)
def test_lines_are_text_on_a_terminal_and_json_elsewhere_unless_told(
    chosen: Any, terminal: bool, as_json: bool, root_logger: logging.Logger
) -> None:
    stream = Terminal() if terminal else io.StringIO()
    settings = ServerSettings(log_format=chosen, api_key=("sesame",), engine_api_key="pepper")
    assert configure_logging(settings, stream) is as_json
    logging.getLogger("paraserve.x").warning("sesame and pepper")
    line = stream.getvalue()
    assert line.startswith("{") is as_json
    assert "sesame" not in line
    assert "pepper" not in line


def test_steps_of_the_start_are_lines_of_the_log_where_it_is_json(root_logger: logging.Logger) -> None:
    stream = io.StringIO()
    progress = Progress(stream, as_json=configure_logging(ServerSettings(log_format="json"), stream))
    progress.step("reading")
    progress.step("ready on http://h:1", {"model": "m"})
    progress.fail("no engine")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["reading", "ready on http://h:1", "no engine"]
    assert [line["level"] for line in lines] == ["info", "info", "critical"]
    assert lines[1]["model"] == "m"


def test_steps_of_the_start_are_for_people_where_the_log_is_text() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    progress.step("ready on http://h:1", {"model": "m", "policies": "none"})
    progress.fail("no engine")
    lines = stream.getvalue().splitlines()
    assert lines[0].endswith("s] ready on http://h:1")
    assert [line.split() for line in lines[1:3]] == [["model", "m"], ["policies", "none"]]
    assert lines[3] == "error: no engine"
