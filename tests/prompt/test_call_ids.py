"""Ids of the model's own that another layer respelled."""

import pytest

from tests.prompt.own_templates import LISTS
from tests.prompt.requests import asked

SHOWS_IDS = LISTS.replace("[{{ m.role }}]", "[{{ m.role }} {{ m.tool_call_id }}]")


def turn(*calls):
    """Calls (an id and a function's name) and a result for each."""
    made = [{"id": i, "type": "function", "function": {"name": name, "arguments": "{}"}} for i, name in calls]
    results = [{"role": "tool", "tool_call_id": i, "content": "ok"} for i, _ in calls]
    return [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": made}, *results]


@pytest.mark.parametrize(
    ("sent", "name", "read"),
    [
        ("functions_read_0", "read", "functions.read:0"),
        ("functions-read-12", "read", "functions.read:12"),
        ("functionsread3", "read", "functions.read:3"),
        ("functions_read_file_3", "read_file", "functions.read_file:3"),
        ("functions_mail-box_list_1", "mail-box_list", "functions.mail-box_list:1"),
        ("functions_v2_search_1", "v2.search", "functions.v2.search:1"),
    ],
)
def test_an_id_of_the_models_own_gets_its_signs_back_in_call_and_result(make_prompt, sent, name, read):
    prepared = make_prompt(SHOWS_IDS, ids="counted").prepare(asked(turn((sent, name))))
    assert prepared.text.count(read) == 2
    assert prepared.normalizations == ("restored_ids",)


@pytest.mark.parametrize(
    "sent", ["call_9f", "functions.read:0", "functions_write_0", "functions_read_", "functions_read_x0", "read_0"]
)
def test_ids_of_another_origin_and_right_ones_stay_as_they_were_sent(make_prompt, sent):
    prepared = make_prompt(SHOWS_IDS, ids="counted").prepare(asked(turn((sent, "read"))))
    assert prepared.text.count(sent) == 2
    assert prepared.normalizations == ()


def test_ids_stay_where_the_model_has_no_such_form(make_prompt):
    assert make_prompt(SHOWS_IDS).prepare(asked(turn(("functions_read_0", "read")))).normalizations == ()


def test_two_calls_never_get_one_id(make_prompt):
    sent = turn(("functions_read_0", "read"), ("functions-read-0", "read"), ("functions.read:1", "read"))
    text = make_prompt(SHOWS_IDS, ids="counted").prepare(asked(sent)).text
    assert [text.count(i) for i in ("functions.read:0", "functions-read-0", "functions.read:1")] == [2, 2, 2]
