"""The Lua functions in the recipes of gateways that no test starts.

HAProxy's Lua runs them as it reads its configuration, with a stand-in for what they use of their
gateway. A stand-in writes down what it was asked to do.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.gateways import recipes
from tests.deploy.gateways.probes import OVERRIDES
from tests.servers import need

CLIENTS_WORDS = ("X-API-Key", "X-Sluice-User", "X-Sluice-Session", "X-Sluice-Task")
KONG = """
ngx = { var = setmetatable({}, {
  __index = { request_uri = "/info/a%2Fb?c=d" },
  __newindex = function(_, name, value) note("let " .. name .. " be '" .. value .. "'") end,
}) }
kong = {
  request = {
    get_method = function() return "PUT" end,
    get_header = function(name) return asked_for[name] end,
  },
  response = { exit = function(status, body, headers)
    note("exit " .. status)
    for name, value in pairs(headers or {}) do note("show " .. name .. " " .. value) end
    return "left"
  end },
  service = { request = {
    clear_header = function(name) note("clear " .. name) end,
    set_header = function(name, value) note("set " .. name .. " " .. tostring(value)) end,
  } },
}
local client = {}
function client:set_timeout(milliseconds) note("timeout " .. milliseconds) end
function client:request_uri(url, request)
  note(request.method .. " " .. url)
  for name, value in pairs(request.headers) do note("send " .. name .. " " .. value) end
  if answered then
    local headers = { ["X-Sluice-Event-Id"] = "evt", ["X-Sluice-Decision"] = "DENY" }
    return { status = answered, headers = headers, body = "why" }
  end
  return nil, "timeout"
end
package.preload["resty.http"] = function() return { new = function() return client end } end
"""
APISIX = """
package.preload["apisix.core"] = function()
  return { request = {
    set_header = function(ctx, name, value) note("set " .. name .. " " .. tostring(value)) end,
  } }
end
"""


def run(
    folder: Path, stand_in: str, function: str, *, answered: int | None = None, upgrade: str = ""
) -> list[str]:
    """What the function `return function … end` asked of its gateway, for a request with this
    `Upgrade`, if any."""
    program = need("haproxy")
    notes = folder / f"notes-{answered}"
    (folder / "function.lua").write_text(function)
    (folder / "run.lua").write_text(
        f"""
        local notes = io.open("{notes}", "w")
        function note(text) notes:write(text, "\\n") end
        answered = {"nil" if answered is None else answered}
        asked_for = {{ Upgrade = {f'"{upgrade}"' if upgrade else "nil"} }}
        {stand_in}
        loadfile("{folder}/function.lua")()({{}}, {{}})
        notes:close()
        """
    )
    (folder / "haproxy.cfg").write_text(f"global\n  lua-load {folder}/run.lua\n")
    command = [str(program), "-c", "-f", str(folder / "haproxy.cfg")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert notes.exists(), done.stderr
    return notes.read_text().splitlines()


def recipe(name: str) -> Any:
    (file,) = recipes.files(name)
    return yaml.safe_load(file.read_text("utf-8"))


def _dashed_overrides() -> set[str]:
    """Names that nginx does not drop for another mark than a dash."""
    names = {field.partition(":")[0] for field in OVERRIDES}
    return {name for name in names if not {"_", "."} & {*name}}


def test_kong_forwards_only_after_a_successful_check(tmp_path: Path) -> None:
    (plugin,) = recipe("kong")["services"][0]["plugins"]
    (function,) = plugin["config"]["access"]
    allowed = run(tmp_path, KONG, function, answered=200)
    assert allowed[:2] == ["timeout 2000", "GET http://127.0.0.1:8710/v1/check/kong"]
    assert sorted(allowed[2:5]) == [
        'send X-API-Key ${{ env "DECK_SLUICE_KEY" }}',
        "send X-Forwarded-Method PUT",
        "send X-Forwarded-Uri /info/a%2Fb?c=d",
    ]
    overrides = {*_dashed_overrides(), "X-Forwarded-Host"}
    assert {f"clear {name}" for name in {*CLIENTS_WORDS, *overrides}} <= set(allowed[5:])
    assert "let upstream_x_forwarded_host be ''" in allowed
    assert allowed[-1] == "set X-Sluice-Event-Id evt"
    assert run(tmp_path, KONG, function, answered=200, upgrade="websocket") == ["exit 400"]
    denied = run(tmp_path, KONG, function, answered=403)
    assert denied[5] == "exit 403"
    assert sorted(denied[6:]) == ["show X-Sluice-Decision DENY", "show X-Sluice-Event-Id evt"]
    for status in (None, 201, 204, 302, 401, 404, 413, 500, 503):
        refused = run(tmp_path, KONG, function, answered=status)
        assert refused[5:] == ["exit 503"], status


def test_apisix_removes_a_client_s_headers_before_the_check(tmp_path: Path) -> None:
    plugins = recipe("apisix")["routes"][0]["plugins"]
    (function,) = plugins["serverless-pre-function"]["functions"]
    asked = run(tmp_path, APISIX, function)
    expected = {*CLIENTS_WORDS, "X-Sluice-Sensitivity", "X-Sluice-Event-Id", "baggage"}
    expected |= _dashed_overrides()
    expected |= {"Upgrade", "HTTP2-Settings"}
    own_host = "set X-Forwarded-Host 127.0.0.1:9000"
    assert {*asked} == {own_host, *(f"set {name} nil" for name in expected)}
    passed_on = plugins["forward-auth"]["request_headers"]
    assert not {each.lower() for each in passed_on} & {each.lower() for each in expected}
