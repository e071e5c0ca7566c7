"""The check that a fast encoder must pass at start before it is trusted: the same ids as the reference, on a corpus.

Never loads a tokenizer itself. One invariant: a single differing id on any text is a failure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from paraserve.tokenizers.token_table import panicked

log = logging.getLogger(__name__)

Encode = Callable[[str], Any]
Fast = TypeVar("Fast")
Reference = TypeVar("Reference")

_PARAGRAPH = "The quick brown fox can't jump over 12,345 lazy dogs; it's 3.14159 times too tired (isn't it?).\n"

CORPUS: tuple[str, ...] = (
    "",
    " ",
    "\n",
    "\r\n\r\n  \r\n\t\t x",
    " leading and trailing  ",
    "a  b   c    d     e",
    _PARAGRAPH * 3,
    "I'M HE'LL we'Re they'd DON'T y'all'd've",
    "x=1;\ty = x**2 // 3 != 0x1F;  // done\n\n\n    return {'k': [1, 2, {\"n\": null}]}\n",
    '{"name": "get_weather", "arguments": {"city": "K\\u00f6ln", "days": [1, 2, 3.0e-5]}}',
    "0 01 012 0123 01234 012345 1234567890 ٣٤٥ ४५६ Ⅷ ½ ²",
    "naïve café über straße ÆØÅ İstanbul ŒUVRE ǅ",
    "cafe\u0301 A\u030a n\u0303 \u1e9b\u0323 \uac01 \u1100\u1161\u11a8 \ufb01 \u212b",
    "北京欢迎你,今天天气很好。我要去学校!",
    "ひらがなカタカナ漢字ー々〆ヵヶ 한국어 문장입니다 ภาษาไทย हिन्दी বাংলা עִבְרִית العَرَبِيَّة",
    "Привет, мир! Ελληνικά Հայերեն ქართული አማርኛ",
    "🌤️ 👩‍👩‍👧‍👦 🇳🇴🇵🇪 ❤️‍🔥 👍🏽 🏴󠁧󠁢󠁳󠁣󠁴󠁿 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠜎𠜱",
    "\u00a0\u2003\u3000\u200b\u200d\ufeff\u2028\u2029\x0b\x0c\x85 mixed\u00a0blank",
    "\x00\x01\x1f\x7f\u0080\u009f\ufffd\ufffe",
    "<think>\n\n</think>\n\n<tool_call>{}</tool_call> <|user|> <|im_start|> [INST] <s> </s> ",
    "https://example.org/a_b-c?d=e&f=%20#g user@example.org C:\\path\\to\\file.txt $HOME/~x",
    "-----=====_____#####.....!!!!!?????       \n\n\n\n\n\n       ",
    "a" * 300 + "ab" * 150 + " " * 200 + "\n" * 90 + "7" * 100,
    "ﷺ ﬃ ℌ ①②③ ㊗ ｆｕｌｌ ｗｉｄｔｈ １２３ ﾊﾝｶｸ",
    'SELECT * FROM t WHERE a<>b AND c>=1; -- ok\nif(a&&b||!c){d--;++e;}\n<a href="x">y</a>',
)
"""Kinds of text that pre-tokenizers and normalizers are known to treat differently, in our own words."""


def probe_texts(added_tokens: Iterable[str], limit: int = 400) -> list[str]:
    """`CORPUS`, and every added token (at most ``limit``) alone, beside blanks, glued to words and to others."""
    tokens = list(added_tokens)[:limit]
    glued = [f"a{token}b {token}\n{token} \t{token[:-1]}" for token in tokens]
    return [*CORPUS, *glued, "".join(tokens), "x ".join(tokens)]


def first_difference(fast: Encode, reference: Encode, texts: Iterable[str]) -> str | None:
    """The first text on which the two disagree, None where there is none. A text that the fast one fails on is one."""
    return next((text for text in texts if _ids(fast, text) != reference(text)), None)


def _ids(encode: Encode, text: str) -> Any:
    try:
        return encode(text)
    except BaseException as error:
        if _gave_up(error):
            return None
        raise


def _gave_up(error: BaseException) -> bool:
    """Whether the fast encoder cannot read a vocabulary, or a text with it."""
    return isinstance(error, ValueError) or panicked(error)


def choose_encoder(
    fast: Callable[[], Fast],
    reference: Reference,
    texts: Iterable[str],
    *,
    source: object,
    name: str,
    encode: Callable[[Any, str], Any] = lambda encoder, text: encoder.encode(text),
) -> Fast | Reference:
    """The fast encoder if it agrees with the reference on everything, else the reference.

    Args:
        fast: makes it, or raises `ValueError` (or panics) where fastokens cannot read the vocabulary.
        source, name: of the vocabulary and of the reference, for the log.
        encode: what is compared.
    """
    try:
        encoder = fast()
    except BaseException as error:
        if not _gave_up(error):
            raise
        log.warning("fastokens cannot read %s (%s): encoding with %s", source, error, name)
        return reference
    difference = first_difference(lambda text: encode(encoder, text), lambda text: encode(reference, text), texts)
    if difference is not None:
        log.warning("fastokens differs from %s on %r for %s: encoding with %s", name, difference, source, name)
        return reference
    return encoder
