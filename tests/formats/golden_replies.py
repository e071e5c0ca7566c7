"""One reply of every family, written out by hand-checked rendering: reasoning, content and three calls.

The texts stand alone, each in `golden/FAMILY.txt` as the model writes it, with a line end behind it that is not part of
the reply: a change of a description that changes what is written shows up there as a difference.
"""

from pathlib import Path

REASONING = "Two tasks.\nFirst the note — 先."
CONTENT = "Working on it… ✍️"
CALLS = [
    (
        "save_note",
        {
            "title": " Zürich\t",
            "body": "  if a < b:\n\treturn \"x\" && '{}'\n",
            "stars": 3,
            "opts": {"pin": True, "tags": ["a", "<b>"]},
        },
    ),
    ("list_shelves", {}),
    ("v2.set-rate", {"rate": 1.5, "exact": False, "label": "null and void"}),
]

REPLIES = {
    path.stem: path.read_bytes().decode().removesuffix("\n")
    for path in sorted(Path(__file__).with_name("golden").glob("*.txt"))
}
