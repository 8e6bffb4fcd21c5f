"""The declared settings: each has a sentence, and a protocol is behind each kind."""

import json
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from policies.ground.addresses import ListenAddress
from sidecar.settings import model as declared
from sidecar.settings.model import Source
from tests.architecture.tree import ROOT


def test_every_setting_has_its_sentence() -> None:
    source = Path(declared.__file__).read_text()
    classes = [
        each for each in vars(declared).values() if isinstance(each, type) and is_dataclass(each)
    ]
    ours = [each for each in classes if each.__module__ == declared.__name__]
    assert len(ours) >= 6
    for each in ours:
        for field in fields(each):
            pattern = rf'    {field.name}: [^\n]+\n    """[A-Z`][^"]+\.'
            assert re.search(pattern, source), f"{each.__name__}.{field.name}"


def test_the_kinds_are_those_of_the_protocols() -> None:
    from sidecar.protocols.registry import MODULES, load_protocol

    assert sorted(MODULES) == sorted(declared.KINDS)
    for kind in declared.KINDS:
        whole: dict[str, Any] = {"alias": "a", "kind": kind, "upstream": "http://a"}
        source = Source(**whole, listen=ListenAddress("127.0.0.1", 0), sensitivity="low")
        assert load_protocol(source, lambda: 0.0).match is not None
    chart = json.loads((ROOT / "deploy/helm/sluice/values.schema.json").read_text())
    allowed = chart["definitions"]["source"]["properties"]["kind"]["enum"]
    assert sorted(allowed) == sorted(declared.KINDS)
