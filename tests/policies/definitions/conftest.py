"""Runs a test with each parser of YAML."""

import pytest
import yaml

import policies.definitions.load as load_module


@pytest.fixture(params=["libyaml", "python"])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both parsers that an installation may have; what they accept must be the same."""
    if request.param == "python":
        monkeypatch.setattr(load_module, "_LOADER", yaml.SafeLoader)
    elif not hasattr(yaml, "CSafeLoader"):
        pytest.skip("this PyYAML has no libyaml")
    return str(request.param)
