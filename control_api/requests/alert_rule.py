"""The fields of an alert rule in requests, and its id (`service.md` 2.7). Knows no store."""

from typing import Annotated

from pydantic import Field

from control_api.requests.base import Identifier, RequestModel

_WEEK = 7 * 24 * 60  # minutes

# 1 to 65535, digit by digit: the API's description shows the pattern, so it has to say all of it.
_PORT = r"[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
# A URL that the service can call. It has no user and no fragment, which could hide where it leads.
_URL = rf"^https?://{_LABEL}(\.{_LABEL})*\.?(:({_PORT}))?([/?][!$-~]*)?$"
Url = Annotated[str, Field(max_length=2048, pattern=_URL)]
Email = Annotated[
    str, Field(max_length=254, pattern=r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9.-]+$")
]
Minutes = Annotated[int, Field(ge=1, le=_WEEK)]
Threshold = Annotated[int, Field(ge=1, le=1_000_000_000)]


class RuleRequest(RequestModel):
    """Names one alert rule."""

    rule_id: Identifier
