"""Recognizes national ids of persons, such as social security numbers, by format and checksum.

Each row of the table is a format of one country. `sure` is a format whose punctuation, letters or
checksum leave little doubt. `with_words` is a format that counts only after one of `words`. The
checksums are python-stdnum's; each of its modules is loaded when its format is first found.
"""

import itertools
import re
from collections.abc import Generator, Iterator
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple, Protocol

from policies.ground.masking.recognizer import LONG, Found, Recognizer

MAX_CHECKED = 512
"""The most checksums that are computed for one text. After those, the format alone decides."""
_PART, _LONGEST_WORD = 4096, 64
_REACH = 48  # characters before a number in which a word may say what it is


class _Checked(Protocol):
    def is_valid(self, number: str) -> bool: ...


class Id(NamedTuple):
    """One country's format of ids, as regular expressions. `module` is the module of python-stdnum
    that validates an id, None if the format alone is enough."""

    module: str | None
    sure: str | None
    with_words: str | None = None
    words: str = ""


_NINE = r"\d{3}[ -]?\d{3}[ -]?\d{3}"
_TEN = r"\d{3}[ -]?\d{3}[ -]?\d{4}"
_ELEVEN = r"\d{11}"
IDS = (
    Id(None, r"(?!000|666)\d{3}-(?!00)\d{2}-(?!0000)\d{4}",
       r"\d{3}[ -]?\d{2}[ -]?\d{4}", r"ssn|social security|itin|tax ?payer"),  # US
    Id(None, r"[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d{2} ?\d{2} ?\d{2} ?[A-D]"),  # GB NINO
    Id("gb.nhs", None, _TEN, r"nhs|national health"),
    Id("ca.sin", None, _NINE, r"\bsin\b|social insurance"),
    Id("au.tfn", None, r"\d{3} ?\d{3} ?\d{2,3}", r"tfn|tax file"),
    Id("ie.pps", r"\d{7}[A-Wa-w][A-IWa-iw]?"),
    Id("de.idnr", r"[1-9]\d ?\d{3} ?\d{3} ?\d{3}"),
    Id("at.vnr", None, r"\d{4} ?\d{6}", r"svnr|sozialversicherung|versicherungsnummer"),
    Id("ch.ssn", r"756\.?\d{4}\.?\d{4}\.?\d{2}"),
    Id("fr.nir", r"[1-478] ?\d{2} ?\d{2} ?[0-9AB]{2} ?\d{3} ?\d{3} ?\d{2}"),
    Id("es.dni", r"\d{8}[ -]?[A-HJ-NP-TV-Z]"),
    Id("es.nie", r"[XYZ][ -]?\d{7}[ -]?[A-HJ-NP-TV-Z]"),
    Id("pt.cc", r"\d{8} ?\d ?[A-Z]{2}\d"),
    Id("pt.nif", None, _NINE, r"\bnif\b|contribuinte"),
    Id("it.codicefiscale", r"[A-Za-z]{6}[0-9LMNPQRSTUV]{2}[A-Za-z][0-9LMNPQRSTUV]{2}"
                           r"[A-Za-z][0-9LMNPQRSTUV]{3}[A-Za-z]"),
    Id("nl.bsn", None, r"\d{4}[. ]?\d{2}[. ]?\d{2,3}|\d{8,9}", r"bsn|burgerservice|sofi"),
    Id("be.nn", r"\d{2}\.?\d{2}\.?\d{2}[ -]?\d{3}[. ]?\d{2}"),
    Id("pl.pesel", _ELEVEN),
    Id("cz.rc", r"\d{6}/\d{3,4}"),
    Id("ro.cnp", r"[1-8]\d{12}"),
    Id("bg.egn", None, r"\d{10}", r"\begn\b|егн"),
    Id("hr.oib", None, _ELEVEN, r"\boib\b"),
    Id("si.emso", None, r"\d{13}", r"emšo|emso|jmbg"),
    Id("gr.amka", None, _ELEVEN, r"amka|αμκα"),
    Id("ee.ik", _ELEVEN),
    Id("se.personnummer", r"(?:19|20)?\d{6}[-+]\d{4}",
       r"(?:19|20)?\d{10}", r"person(?:nummer|al)|\bpnr\b"),
    Id("no.fodselsnummer", r"\d{6} ?\d{5}"),
    Id("dk.cpr", r"\d{6}-\d{4}", r"\d{10}", r"\bcpr\b"),
    Id("fi.hetu", r"\d{6}[-+A-FU-Y]\d{3}[0-9A-FHJ-NPR-Y]"),
    Id("is_.kennitala", None, r"\d{6}-?\d{4}", r"kennitala"),
    Id("br.cpf", r"\d{3}\.?\d{3}\.?\d{3}-?\d{2}"),
    Id("ar.cuit", r"(?:2[03457]|3[034])-\d{8}-\d"),
    Id("cl.rut", r"\d{1,2}\.\d{3}\.\d{3}-[\dKk]", r"\d{7,8}-?[\dKk]", r"\brut\b"),
    Id("mx.curp", r"[A-Z]{4}\d{6}[HM][A-Z]{5}[0-9A-Z]\d"),
    Id("in_.aadhaar", r"[2-9]\d{3} \d{4} \d{4}|[2-9]\d{3}-\d{4}-\d{4}",
       r"\d{12}", r"aadhaar|aadhar|uidai"),
    Id("in_.pan", r"[A-Z]{3}[ABCFGHJLPT][A-Z]\d{4}[A-Z]"),
    Id("cn.ric", r"\d{17}[\dXx]"),
    Id("kr.rrn", r"\d{6}-[0-9]\d{6}"),
    Id("za.idnr", r"\d{13}", r"\d{6} ?\d{4} ?\d{3}", r"\bid\b"),
    Id("tr.tckimlik", None, _ELEVEN, r"kimlik|\btckn\b"),
    Id("il.idnr", None, r"\d{8}-?\d", r"teudat|israeli? id|ת\.ז"),
    Id(None, None, r"[A-Z]{0,3}[ -]?\d(?:[ ./-]?\d){5,14}(?:[ -]?[A-Z])?",
       r"\bssn\b|social security|national (?:id|insurance)|insurance number"),
    Id(None, None, r"(?=[A-Z0-9]*\d[A-Z0-9]*\d)[A-Z0-9]{6,9}", r"passport"),
    Id(None, None, r"(?=[A-Z0-9]*\d[A-Z0-9]*\d)[A-Z0-9-]{6,16}",
       r"driver'?s?'? licen[cs]e|driving licen[cs]e|national id|identity (?:card|number)"),
)  # fmt: skip

_EDGES = r"(?<![0-9A-Za-z]){}(?![0-9A-Za-z])"
_SURE = [
    (each, re.compile(_EDGES.format(f"(?:{each.sure})"), re.ASCII)) for each in IDS if each.sure
]
# Digits alone say little: one random number in ten satisfies a checksum of one digit.
_LOOSE = [
    (
        each,
        re.compile(_EDGES.format(f"(?:{each.with_words})"), re.ASCII),
        re.compile(each.words, re.I),
    )
    for each in IDS
    if each.with_words
]
_WORDS = re.compile("|".join(each.words for each in IDS if each.words), re.I)
_likely = re.compile(
    r"[0-9](?:[ ./-]?[0-9]){5}|[A-Za-z]{3}[0-9]{4}"
    r"|[A-Za-z]{6}[0-9LMNPQRSTUV]{2}[A-Za-z]|[0-9][A-Z0-9]{5}"
).search


@lru_cache(maxsize=64)
def _module(name: str) -> _Checked:
    module: _Checked = import_module(f"stdnum.{name}")
    return module


def _valid(module: str | None, number: str) -> bool:
    # A repeated digit, such as "000 000 000", satisfies many checksums.
    return module is None or (
        len(set(number) - set(" .-/")) > 1 and _module(module).is_valid(number)
    )


def _has_words(text: str) -> Generator[None, None, bool]:
    """Find out if a word that announces an id may be in a long text. A generator that searches the
    text in parts, with pauses, since no other search takes as long; it returns the answer."""
    for at in range(0, len(text), _PART):
        yield
        # A word that only seems to end where the part does costs time, and nothing else.
        if _WORDS.search(text, at, at + _PART + _LONGEST_WORD):
            return True
    return False


def _spans(text: str) -> Iterator[Found]:
    checks = itertools.count()

    def valid(module: str | None, number: str) -> bool:
        # A text full of numbers must not block the event loop: past the limit, the format decides.
        return next(checks) >= MAX_CHECKED or _valid(module, number)

    long = len(text) > LONG
    for each, form in _SURE:
        if long:
            yield None
        for match in form.finditer(text):
            yield match.span() if valid(each.module, match.group()) else None
    # One search instead of one for each row.
    if not ((yield from _has_words(text)) if long else _WORDS.search(text)):
        return
    for each, form, words in _LOOSE:
        if long:
            yield None
        if not words.search(text):
            continue
        for match in form.finditer(text):
            near = words.search(text, max(0, match.start() - _REACH), match.start())
            yield match.span() if near and valid(each.module, match.group()) else None


NATIONAL_ID = Recognizer("NATIONAL_ID", _likely, _spans)
