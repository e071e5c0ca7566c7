"""Media of a conversation: every usual spelling becomes a web address or a data URL, and nothing else passes."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from paraserve.engines.base import MediaItem
from paraserve.prompt.errors import PromptError
from paraserve.prompt.media import collect_media
from tests.prompt.own_templates import LISTS
from tests.prompt.requests import asked

ALL = frozenset({"image", "video", "audio"})
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(22)).decode()
WAV = base64.b64encode(b"RIFF\0\0\0\0WAVEfmt " + bytes(80)).decode()
MP4 = base64.b64encode(b"\0\0\0\x18ftypmp42" + bytes(90)).decode()
OTHER = base64.b64encode(b"something else..").decode()
WEB = "https://x.test/a"


def collected(part: dict[str, Any], kinds: frozenset[str] = ALL) -> tuple[str, str]:
    (item,) = collect_media([{"role": "user", "content": [{"type": "text", "text": "see"}, part]}], kinds)
    return item.kind, item.url


@pytest.mark.parametrize("kind", ["image", "video", "audio"])
@pytest.mark.parametrize("url", [WEB, "HTTP://x.test/a", f"data:image/png;base64,{PNG}"])
def test_an_address_is_passed_on_as_it_is_in_every_spelling(kind, url):
    named = f"{kind}_url"
    spellings = [
        {"type": named, named: {"url": url}},
        {"type": named, named: url},
        {"type": named, "url": url},
        {"type": kind, kind: url},
        {"type": kind, "url": url},
        {"type": f"input_{kind}", f"input_{kind}" if kind == "audio" else named: url},
    ]
    assert {collected(part) for part in spellings} == {(kind, url)}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            {"type": "input_audio", "input_audio": {"data": WAV, "format": "mp3"}},
            ("audio", f"data:audio/mp3;base64,{WAV}"),
        ),
        ({"type": "input_audio", "input_audio": {"data": WAV}}, ("audio", f"data:audio/wav;base64,{WAV}")),
        (
            {"type": "input_audio", "input_audio": {"data": f"data:a/b;base64,{WAV}"}},
            ("audio", f"data:a/b;base64,{WAV}"),
        ),
        ({"type": "image_url", "image_url": {"url": PNG}}, ("image", f"data:image/png;base64,{PNG}")),
        ({"type": "image_url", "image_url": PNG}, ("image", f"data:image/png;base64,{PNG}")),
        ({"type": "image", "image": {"data": PNG}}, ("image", f"data:image/png;base64,{PNG}")),
        ({"type": "video", "video": MP4}, ("video", f"data:video/mp4;base64,{MP4}")),
        ({"type": "image", "image": OTHER}, ("image", f"data:application/octet-stream;base64,{OTHER}")),
    ],
)
def test_base64_becomes_a_data_url_of_what_it_holds(part, expected):
    assert collected(part) == expected


@pytest.mark.parametrize("kind", ["image", "video", "audio"])
@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "/etc/passwd",
        "../a.png",
        "ftp://x.test/a",
        "s3://b/k",
        "data:",
        "a.png",
        "x",
        "\u00e9" * 4,
    ],
)
def test_a_path_or_another_scheme_never_reaches_an_engine(kind, url):
    for part in ({"type": f"{kind}_url", f"{kind}_url": {"url": url}}, {"type": kind, kind: url}):
        with pytest.raises(PromptError, match="no http or https URL, no data URL and no base64") as caught:
            collected(part)
        assert caught.value.param == "messages[0].content[1]"


@pytest.mark.parametrize("value", [None, "", 5, {}, {"url": None}, {"data": ""}])
def test_a_part_that_holds_nothing_is_named(value):
    with pytest.raises(PromptError, match="holds no URL and no data") as caught:
        collected({"type": "image_url", "image_url": value})
    assert caught.value.param == "messages[0].content[1]"


@pytest.mark.parametrize("kind", ["image", "video", "audio"])
def test_a_kind_that_the_engine_does_not_take_is_refused(kind):
    with pytest.raises(PromptError, match=f"does not take {kind} input"):
        collected({"type": f"{kind}_url", f"{kind}_url": {"url": WEB}}, ALL - {kind})


@pytest.mark.parametrize("detail", [None, "auto", "high", "original"])
def test_a_detail_that_is_the_whole_image_is_served(detail: str | None) -> None:
    url = {"url": "https://x.test/a.png", "detail": detail}
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": url}]}]
    assert collect_media(messages, frozenset({"image"})) == (MediaItem("image", "https://x.test/a.png"),)


def test_a_detail_that_no_engine_can_give_is_refused_by_name() -> None:
    for part in (
        {"type": "image_url", "image_url": {"url": "https://x.test/a.png", "detail": "low"}},
        {"type": "input_image", "image_url": "https://x.test/a.png", "detail": "low"},
    ):
        with pytest.raises(PromptError) as caught:
            collect_media([{"role": "user", "content": [part]}], frozenset({"image"}))
        assert caught.value.param == f"messages[0].content[0].{part['type']}.detail"


@pytest.mark.parametrize("first", ["system", "developer"])
def test_images_of_instructions_stay_where_these_are_joined(make_prompt: Any, first: str) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}
    messages: list[dict[str, Any]] = [
        {"role": first, "content": "Look."},
        {"role": "developer", "content": [{"type": "text", "text": "At this:"}, image]},
        {"role": "user", "content": "hi"},
    ]
    prepared = make_prompt(LISTS, media=frozenset({"image"})).prepare(asked(messages))
    assert prepared.text.startswith("[system]Look.\n\nAt this:<image>\n[user]hi")
    assert [item.url for item in prepared.media] == ["https://x.test/a.png"]
