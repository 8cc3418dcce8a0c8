"""The characters of a page's bytes, as browsers would read them: by its mark, its type, its own word, or a guess."""

from __future__ import annotations

import codecs
import re

_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_XML_ENCODING = re.compile(r"\s*<\?xml[^<>]{0,200}?\sencoding\s*=\s*[\"']([\w.:-]{1,40})", re.IGNORECASE)
_ODD = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\ufffd]")
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_NO_CHARSETS = ("idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "utf-7", "charmap")
"""Python's, and no page's: slow ones, and ones by which text would hide from whoever looks at it undecoded."""
_ALIASES = {
    "x-sjis": "cp932", "x-gbk": "gb18030", "x-x-big5": "big5hkscs", "x-euc-jp": "euc_jp", "windows-874": "cp874",
    "dos-874": "cp874", "windows-949": "cp949", "windows-31j": "cp932", "gb_2312-80": "gb18030", "iso-ir-58": "gb18030",
    "x-cp1250": "cp1250", "x-cp1251": "cp1251", "x-cp1252": "cp1252", "x-mac-roman": "mac_roman",
    "x-mac-cyrillic": "mac_cyrillic",
}  # fmt: skip
"""Labels of the web's (encoding.spec.whatwg.org) that Python does not know."""
_AS_BROWSERS_DO = {
    "ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874",
    "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs",
}  # fmt: skip
"""Charsets that pages name when they mean a larger one."""


def decoded(body: bytes, kind: str) -> str:
    """The characters of a page; what cannot be read as its charset, such as half a character at a cut, is U+FFFD."""
    for mark, name in _BOMS:
        if body.startswith(mark):
            return body.decode(name, "replace")
    declared = _declared(body, kind)
    names = list(dict.fromkeys(filter(None, (declared, "utf-8"))))
    for name in names:
        try:
            return body.decode(name)
        except UnicodeError:
            continue
    guesses = [body.decode(name, "replace") for name in names]
    best = min(guesses, key=lambda guess: guess.count("\ufffd"))
    # A cut in the middle of a character, or a few broken ones, leave it what it was said to be; else it is likely this.
    if best.count("\ufffd") * 50 > len(best) and declared in ("", "utf-8"):
        return body.decode("cp1252", "replace")
    return best


def is_binary(source: str) -> bool:
    """Whether what was decoded is no text."""
    start = source[:4096]
    return len(_ODD.findall(start)) * 10 > len(start)


def _declared(body: bytes, kind: str) -> str:
    """The charset that is said, by Python's name for it; empty where it is none, or none that is used."""
    if found := _CHARSET.search(kind):
        return _charset(found[1])
    start = body[:2048].decode("ascii", "replace")
    found = _XML_ENCODING.match(start) or _CHARSET.search(start)
    name = _charset(found[1]) if found else ""
    return "" if name.startswith(("utf-16", "utf-32")) else name  # or these words could not have been read


def _charset(label: str) -> str:
    try:
        info = codecs.lookup(_ALIASES.get(label.lower(), label))
        if info.name in _NO_CHARSETS:
            return ""
        b"a".decode(info.name, "replace")  # some are no charsets at all, but ways to pack
    except (LookupError, ValueError):
        return ""
    return _AS_BROWSERS_DO.get(info.name, info.name)
