"""Precision and recall of the masking, and what it costs: `python -m tests.benchmarks.masking`.

The texts are sentence templates of presidio-evaluator (Microsoft, MIT), the values Faker's and, for
phones and national ids, the generated persons that presidio-evaluator ships. Neither was written
here. Three sets, none with a locale or a seed of another's:

    tuned     the even templates, eight locales, and the generated persons
    held-out  the odd templates, eighteen locales; looked at once, and then corrected by
    last      the odd templates, twenty locales; what came out is what the README says

The presidio-evaluator wheel is read as a file, not installed:

    pip download --no-deps presidio-evaluator==0.3.2

A value counts as found where no character of it that is a letter or a digit is left, whatever the
label; a label is right where its span overlaps a value of that kind.
"""

import argparse
import csv
import io
import random
import re
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from faker import Faker

from policies.ground.masking import masked_text
from policies.ground.masking.mask import find_spans

TUNED = ("en_US", "de_DE", "fr_FR", "es_ES", "it_IT", "pl_PL", "pt_BR", "en_IN")
HELD_OUT = (
    "en_GB", "en_CA", "en_AU", "en_IE", "en_NZ", "nl_NL", "nl_BE", "sv_SE", "da_DK", "no_NO",
    "fi_FI", "de_AT", "de_CH", "fr_CH", "fr_CA", "pt_PT", "cs_CZ", "es_MX",
)  # fmt: skip
LAST = (
    "hu_HU", "ro_RO", "sk_SK", "sl_SI", "hr_HR", "bg_BG", "el_GR", "tr_TR", "et_EE", "lt_LT",
    "es_CO", "es_AR", "es_CL", "ja_JP", "ko_KR", "zh_CN", "uk_UA", "ru_RU", "id_ID", "en_PH",
)  # fmt: skip
SETS = {"tuned": (TUNED, 1), "held-out": (HELD_OUT, 20_260_000), "last": (LAST, 31_000_000)}
DATA = "presidio_evaluator/data_generator/raw_data/"
KINDS = {
    "email": "EMAIL",
    "phone_number": "PHONE",
    "iban": "IBAN",
    "credit_card_number": "CARD",
    "ssn": "NATIONAL_ID",
    "ip_address": "IP",
    "us_driver_license": "",
}
_slot = re.compile(r"\{\{([a-z_]+)\}\}")
QUERY = "what are the terms of the contract with the supplier in Ulm?"


class Text(NamedTuple):
    text: str
    values: list[tuple[int, int, str]]
    """Start, end and label."""


def value(fake: Faker, name: str) -> tuple[str, bool]:
    """The value for a template's slot, and whether Faker has a provider of that name."""
    if name == "ip_address":
        return str(fake.ipv4() if fake.random.random() < 0.7 else fake.ipv6()), True
    same = {"person": "name", "organization": "company", "zipcode": "postcode", "age": "random_int"}
    same |= {"nationality": "country", "name_nonbinary": "name", "street_name": "street_name"}
    try:
        made = getattr(fake, same.get(name, name))()
    except AttributeError:
        return str(fake.word()), False
    return str(made).replace("\n", ", "), True


def filled(template: str, make: Callable[[str], tuple[str, bool]]) -> Text:
    pieces: list[str] = []
    values: list[tuple[int, int, str]] = []
    at = size = 0
    for slot in _slot.finditer(template):
        before = template[at : slot.start()]
        made, real = make(slot[1])
        pieces += (before, made)
        label = KINDS.get(slot[1])
        if label is not None and real:
            values.append((size + len(before), size + len(before) + len(made), label))
        size += len(before) + len(made)
        at = slot.end()
    return Text("".join((*pieces, template[at:])), values)


def corpus(wheel: Path, which: str, rounds: int) -> Iterator[Text]:
    with zipfile.ZipFile(wheel) as archive:
        raw = archive.read(DATA + "templates.txt").decode(errors="replace")
        people = archive.read(DATA + "FakeNameGenerator.com_3000.csv").decode("utf-8-sig")
    lines = [line.replace("\\n", "\n").replace("\\,", ",") for line in raw.splitlines() if line]
    tuned = which == "tuned"
    templates = [line for at, line in enumerate(lines) if (at % 2 == 0) == tuned]
    locales, seed = SETS[which]
    for at, locale in enumerate(locales):
        fake = Faker(locale)
        fake.seed_instance(seed + at)
        for template in templates * rounds:
            yield filled(template, partial(value, fake))
    if tuned:
        yield from _people(templates, people)


def _people(templates: list[str], table: str) -> Iterator[Text]:
    """Phones and national ids of the generated persons, in the templates that use them."""
    fake, chance = Faker("en_US"), random.Random(1)  # a corpus, not a key
    fake.seed_instance(1)
    fits = {
        name: [t for t in templates if f"{{{{{name}}}}}" in t] for name in ("phone_number", "ssn")
    }
    for person in csv.DictReader(io.StringIO(table)):
        for name, column in (("phone_number", "TelephoneNumber"), ("ssn", "NationalID")):
            told = person[column]
            if not told or "E+" in told or not fits[name]:
                continue
            yield filled(chance.choice(fits[name]), partial(_told, fake, name, told))


def _told(fake: Faker, name: str, told: str, slot: str) -> tuple[str, bool]:
    return (told, True) if slot == name else value(fake, slot)


class Score:
    def __init__(self) -> None:
        self.values: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        self.spans: Counter[str] = Counter()
        self.right: Counter[str] = Counter()
        self.masked_rightly: Counter[str] = Counter()
        self.missed: list[tuple[str, str, str]] = []
        self.wrong: list[tuple[str, str, str]] = []

    def add(self, text: Text) -> None:
        spans = find_spans(text.text, "")
        for start, end, label in text.values:
            if not label:
                continue
            self.values[label] += 1
            left = [
                place
                for place in range(start, end)
                if text.text[place].isalnum() and not any(s <= place < e for s, e, _ in spans)
            ]
            if left:
                self.missed.append(
                    (label, text.text[start:end], text.text[max(0, start - 30) : end])
                )
            else:
                self.found[label] += 1
        for start, end, label in spans:
            self.spans[label] += 1
            kinds = {kind for s, e, kind in text.values if s < end and start < e}
            self.right[label] += label in kinds
            self.masked_rightly[label] += bool(kinds)
            if not kinds:
                self.wrong.append(
                    (label, text.text[start:end], text.text[max(0, start - 30) : end + 9])
                )

    def show(self, misses: int) -> None:
        print(
            f"{'label':<12} {'values':>7} {'recall':>7}"
            f" {'spans':>7} {'label right':>12} {'personal':>9}"
        )
        for label in sorted({*self.values, *self.spans}):
            spans = self.spans[label] or 1
            recall = self.found[label] / self.values[label] if self.values[label] else float("nan")
            print(
                f"{label:<12} {self.values[label]:>7} {recall:>7.3f} {self.spans[label]:>7}"
                f" {self.right[label] / spans:>12.3f} {self.masked_rightly[label] / spans:>9.3f}"
            )
        chance = random.Random(3)
        for name, examples in (("missed", self.missed), ("wrong", self.wrong)):
            for example in chance.sample(examples, min(misses, len(examples))):
                print(name, *map(repr, example))


def cost() -> None:
    """CPU time of one text, and of 64 KiB."""
    person = "mail ann@example.com about the contract of the supplier 4711"
    for text, count in ((QUERY, 20_000), (QUERY[:-1] + " 4711?", 5_000), (person, 5_000)):
        best = min(_seconds(text, count) for _ in range(5))
        print(f"{best * 1e6:8.1f} µs  {len(text)} characters: {text}")
    for name, piece in (("prose", QUERY), ("cards", "4111111111111111 "), ("ids", "85073003328 ")):
        print(f"{_seconds((piece * 9000)[:65536], 1) * 1e3:8.1f} ms  64 KiB of {name}")


def _seconds(text: str, count: int) -> float:
    began = time.process_time()
    for _ in range(count):
        masked_text(text)
    return (time.process_time() - began) / count


def main() -> None:
    parser = argparse.ArgumentParser(description="precision, recall and cost of the masking")
    parser.add_argument("wheel", type=Path, help="presidio_evaluator-0.3.2-py3-none-any.whl")
    parser.add_argument("--set", choices=tuple(SETS), default="last")
    parser.add_argument("--rounds", type=int, default=5, help="times that each template is filled")
    parser.add_argument("--misses", type=int, default=0, help="examples of what went wrong")
    told = parser.parse_args()
    score = Score()
    for text in corpus(told.wheel, told.set, told.rounds):
        score.add(text)
    score.show(told.misses)
    cost()


if __name__ == "__main__":
    main()
