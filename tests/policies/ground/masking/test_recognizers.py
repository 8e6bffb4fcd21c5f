"""What each recognizer finds, and what it leaves alone."""

import pytest

from policies.ground.masking import masked_text
from policies.ground.masking.mask import RECOGNIZERS

FOUND = [
    ("mail ann@example.com, please", "mail [EMAIL], please"),
    ("Ann.O'Neil+x@mail.example.co.uk.", "[EMAIL]."),
    ("email=bob@example.org&x=1", "email=[EMAIL]&x=1"),
    ("jörg@müller.example", "[EMAIL]"),
    ("ann@[10.0.0.1]", "[EMAIL]"),
    ("pay to DE89 3704 0044 0532 0130 00 today", "pay to [IBAN] today"),
    ("gb29nwbk60161331926819", "[IBAN]"),
    ("IBAN GB30LPLP8242407494744", "IBAN [IBAN]"),
    ("Phone: 51-16-34-25", "Phone: [PHONE]"),
    ("You can call 473 6536", "You can call [PHONE]"),
    ("my card 676100082335", "my card [CARD]"),
    ("card 4111 1111 1111 1111 exp 12/27", "card [CARD] exp 12/27"),
    ("5500-0055-5555-5559", "[CARD]"),
    ("378282246310005", "[CARD]"),
    ("in 2024 4111 1111 1111 1111 12", "in 2024 [CARD] 12"),
    ("ssn 078-05-1120", "ssn [NATIONAL_ID]"),
    ("my SSN is 078051120", "my SSN is [NATIONAL_ID]"),
    ("NINO AB123456C", "NINO [NATIONAL_ID]"),
    ("NHS number 943 476 5919", "NHS number [NATIONAL_ID]"),
    ("IdNr 36 574 261 809", "IdNr [NATIONAL_ID]"),
    ("12345678Z et X1234567L", "[NATIONAL_ID] et [NATIONAL_ID]"),
    ("RSSMRA85T10A562S", "[NATIONAL_ID]"),
    ("BSN: 111222333", "BSN: [NATIONAL_ID]"),
    ("PESEL 44051401359", "PESEL [NATIONAL_ID]"),
    ("CPF 390.533.447-05", "CPF [NATIONAL_ID]"),
    ("880320-0016", "[NATIONAL_ID]"),
    ("PAN ACUPA7085R", "PAN [NATIONAL_ID]"),
    ("from 192.168.10.20:443 to 2001:db8::8a2e:370:7334", "from [IP]:443 to [IP]"),
    ("10.0.0.0/8", "[IP]/8"),
    ("call +49 30 1234567 now", "call [PHONE] now"),
    ("tel. (212) 555-0142 ext. 12", "tel. [PHONE]"),
    ("06 12 34 56 78", "[PHONE]"),
    ("020 7946 0958", "[PHONE]"),
    ("phone: 2125550142", "phone: [PHONE]"),
    ("password=hunter2; x", "password=[SECRET]; x"),
    ('{"api_key": "a b", "n": 1}', '{"api_key": "[SECRET]", "n": 1}'),
    ("Authorization: Bearer abc.def-ghi", "Authorization: [SECRET]"),
    ("a bearer 0123456789abcdef", "a bearer [SECRET]"),
    ("key slc_" + "a" * 49, "key [SECRET]"),
    ("AKIAIOSFODNN7EXAMPLE", "[SECRET]"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "[SECRET]"),
    ("postgresql://bob:hunter2@db/x", "postgresql://bob:[SECRET]@db/x"),
]
LEFT = [
    "terms of contract 4711",
    "version 1.2.3.4, v10.0.0.1, pkg==1.2.3.4",
    "at 12:34:56 on 2024-01-15, 15.01.2024 or 1/15/2024",
    "std::vector<foo::bar>, ab::cd",
    "total 1.234.567,89 or 1,234,567.89 or 1234567.89",
    "order 12345678 of invoice no. 200-300-400",
    "0194bd6e-7c00-7a1b-8c2d-3e4f5a6b7c8d",
    "n4bQgYhMfWWaL2038475610987q",
    "4111 1111 1111 1112",
    "DE88 3704 0044 0532 0130 00"[:9],
    "who @ where, @ann, a@b",
    "token_count: 512, password: null",
    "a passphrase is what you remember",
    "call about order 12345678",
    "10.000.000 records, 676100082336",
    "pages 100-200, 3000-4000",
]


@pytest.mark.parametrize(("text", "masked"), FOUND, ids=[text for text, _ in FOUND])
def test_personal_data_is_masked(text: str, masked: str) -> None:
    assert masked_text(text).text == masked


@pytest.mark.parametrize("text", LEFT)
def test_text_that_only_resembles_personal_data_is_not_masked(text: str) -> None:
    assert masked_text(text) == (text, ())


@pytest.mark.parametrize(
    "trick",
    [
        "４１１１ １１１１ １１１１ １１１１",
        "4111\u200b1111\u200d1111\u20601111",
        "4111\u00a01111\u20091111\u30001111",
        "4111\u20111111\u20131111\u22121111",
        "٤١١١١١١١١١١١١١١١",
        "4\ufe0f1111\u00ad11111111111",
        "4.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1",
    ],
)
def test_lookalike_characters_do_not_prevent_masking(trick: str) -> None:
    assert masked_text(f"x {trick} y").text == "x [CARD] y"


def test_every_label_of_the_table_is_tried_here() -> None:
    found = {label for text, _ in FOUND for label in masked_text(text).labels}
    assert found == {each.label for each in RECOGNIZERS}
