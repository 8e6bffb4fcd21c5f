"""The bodies and messages of errors."""

from http import HTTPStatus

import orjson
import pytest

from policies.ground.errors import Invalid, SluiceError, error_body, invalid
from policies.ground.settings import SettingsError

FAMILY = [SluiceError, *SluiceError.__subclasses__()]


@pytest.mark.parametrize("error", FAMILY, ids=lambda each: each.__name__)
def test_every_error_has_the_one_body(error: type[SluiceError]) -> None:
    plain, full = error(), error("said", details="a\nb")
    assert plain.body() == {
        "error": HTTPStatus(error.status).phrase,
        "message": error.__doc__,
        "code": error.status,
    }
    assert str(plain) == error.__doc__
    assert orjson.loads(full.encoded()) == full.body()
    assert full.body() | {"error": ""} == {
        "error": "",
        "message": "said",
        "code": error.status,
        "details": "a\nb",
    }


def test_an_error_body_has_details_only_where_there_are_some() -> None:
    assert error_body(404, "no such policy").keys() == {"error", "message", "code"}


def test_each_fault_is_on_a_line_of_its_own() -> None:
    one, two = invalid(["a: is required"]), invalid(["a: is required", "b: must be 1"], "query")
    assert isinstance(one, Invalid)
    assert (one.message, one.details) == ("1 field is not valid in the body", "a: is required")
    assert two.message == "2 fields are not valid in the query"
    assert two.details == "a: is required\nb: must be 1"


def test_unusable_settings_are_all_reported_at_once() -> None:
    error = SettingsError(["`a` is not a number", "`b` is not known"])
    assert error.complaints == ["`a` is not a number", "`b` is not known"]
    assert str(error) == "`a` is not a number\n`b` is not known"
