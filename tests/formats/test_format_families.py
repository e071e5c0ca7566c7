"""Every family's own golden reply means the same in every split, and is what the description writes."""

import json

import pytest

from paraserve.formats.events import ContentDelta, join_deltas
from paraserve.formats.families import FORMATS
from paraserve.formats.reading.parser import OutputParser
from paraserve.formats.spec import Format
from paraserve.formats.types import ReplyStart
from tests.formats.formats_kit import TOOLS, WITH_CALLS, each, parse, parse_invariant, random_split
from tests.formats.golden_replies import CALLS, CONTENT, REASONING, REPLIES
from tests.formats.render import Call, render

BY_NAME = {format.name: format for format in FORMATS}
IDS = ("nOtE00001", "sHeLf0002", "rAtE00003")
every_family = pytest.mark.parametrize("format", WITH_CALLS, ids=lambda format: format.name)


def expected(format: Format) -> tuple[str, str, list[tuple[str, dict[str, object]]]]:
    content = "" if format.calls[0].bare else CONTENT
    return REASONING if format.reasoning else "", content, CALLS


def test_every_family_with_calls_has_a_golden_reply() -> None:
    assert set(REPLIES) == {format.name for format in WITH_CALLS}
    assert len(BY_NAME) == len(FORMATS)


@every_family
def test_golden_reply_is_exact_in_every_split(format: Format) -> None:
    folded = parse_invariant(format, REPLIES[format.name])
    assert (folded.reasoning, folded.content, folded.plain_calls) == expected(format)


@each(WITH_CALLS)
def test_golden_reply_is_exact_in_random_splits(format: Format) -> None:
    for seed in range(200):
        folded, _ = parse(format, random_split(REPLIES[format.name], seed))
        assert (folded.reasoning, folded.content, folded.plain_calls) == expected(format)


@each(WITH_CALLS)
def test_plain_text_takes_the_short_way_behind_any_text(format: Format) -> None:
    """Speed, said as behaviour: text is known to be plain however the text before it was read."""
    parser = OutputParser(format, tools=TOOLS, start=ReplyStart.CONTENT)
    assert join_deltas(parser.feed("One") + parser.feed(" two")) == [ContentDelta("One two")]
    assert parser.plain(" three") == ContentDelta(" three")


@every_family
def test_description_writes_the_golden_reply(format: Format) -> None:
    reasoning, content, calls = expected(format)
    ids = IDS if format.ids == "nine" else ("", "", "")
    made = [Call(name, arguments, id_) for (name, arguments), id_ in zip(calls, ids, strict=True)]
    assert render(format, reasoning=reasoning or None, content=content, calls=made) == REPLIES[format.name]


@each(WITH_CALLS)
def test_reply_after_an_opened_reasoning_block_means_the_same(format: Format) -> None:
    if format.reasoning is None:
        format = BY_NAME["qwen3"]
    reasoning, content, calls = expected(format)
    made = [Call(name, arguments) for name, arguments in calls]
    text = render(format, reasoning=reasoning, content=content, calls=made, start=ReplyStart.REASONING)
    folded = parse_invariant(format, text, start=ReplyStart.REASONING)
    assert (folded.reasoning, folded.content, folded.plain_calls) == (reasoning, content, calls)


@each(WITH_CALLS)
def test_reply_after_a_closed_reasoning_block_means_the_same(format: Format) -> None:
    _, content, calls = expected(format)
    made = [Call(name, arguments) for name, arguments in calls]
    text = render(format, content=content, calls=made, start=ReplyStart.CONTENT)
    folded = parse_invariant(format, text, start=ReplyStart.CONTENT)
    assert (folded.reasoning, folded.content, folded.plain_calls) == ("", content, calls)


@every_family
def test_ids_have_the_shape_of_the_family(format: Format) -> None:
    folded, _ = parse(format, REPLIES[format.name], call_index_offset=4)
    ids = [call.id for call in folded.calls]
    assert len(set(ids)) == 3
    match format.ids:
        case "counted":
            assert ids == ["functions.save_note:4", "functions.list_shelves:5", "functions.v2.set-rate:6"]
        case "nine":
            assert all(len(id_) == 9 and id_.isalnum() for id_ in ids)
        case _:
            assert all(id_.startswith("call_") and len(id_) == 29 for id_ in ids)


def test_mistral_keeps_the_id_that_the_model_wrote_before_the_arguments() -> None:
    folded, _ = parse(BY_NAME["mistral_v11"], REPLIES["mistral_v11"])
    assert [call.id for call in folded.calls] == list(IDS)


@each(WITH_CALLS)
def test_markup_tokens_are_known_so_that_they_stay_in_the_text(format: Format) -> None:
    for marker in format.marker_texts:
        assert format.needs_token(marker)
    assert not format.needs_token("")


@each(WITH_CALLS)
def test_all_arguments_join_to_the_text_of_one_object(format: Format) -> None:
    folded, _ = parse(format, list(REPLIES[format.name]), tools=TOOLS)
    for call in folded.calls:
        assert json.loads(call.arguments) == dict(CALLS)[call.name]


def test_no_marker_begins_another_one_of_the_same_state() -> None:
    """Else what a short one means would depend on where the text was cut."""
    from paraserve.formats.reading.tables import compile_format

    for format in FORMATS:
        tables = compile_format(format, calls=True)
        for marks in (*tables.marks.values(), *tables.after_call.values()):
            for one in marks.meanings:
                assert not [other for other in marks.meanings if other != one and other.startswith(one)], format.name
