"""`sluice policy schema` and the files that it prints."""

import json

import jsonschema_rs
import pytest

from deploy.commands.policy.__main__ import main
from deploy.commands.policy.schema import schema
from tests.support import schemas


@pytest.mark.parametrize("kind", sorted(schemas.MADE))
def test_a_schema_is_printed(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", kind]) == 0
    printed = capsys.readouterr().out
    assert printed == schema(kind)
    assert json.loads(printed)["$schema"] == schemas.DIALECT
    jsonschema_rs.Draft202012Validator(json.loads(printed))


def test_the_shipped_schemas_are_those_that_validate() -> None:
    assert schemas.stale() == [], "python -m tests.support.schemas"


def test_the_default_is_that_of_policies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert capsys.readouterr().out == schema("policy")
