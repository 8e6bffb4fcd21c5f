"""Reads a form's body. Knows no page."""

from urllib.parse import parse_qsl

from control_api.console.visit import Form
from policies.ground.errors import Malformed

MAX_FIELDS = 512
_TYPE = "application/x-www-form-urlencoded"


def read_form(body: bytes, content_type: str | None) -> Form:
    """The fields of a form. Raises `Malformed`."""
    kind, _, parameters = (content_type or "").partition(";")
    if kind.strip().lower() != _TYPE:
        raise Malformed(f"a form of the console is sent as `{_TYPE}`")
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if charset not in ("", "utf-8"):
        raise Malformed("a form of the console is sent in UTF-8")
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_FIELDS,
        )
    except UnicodeDecodeError:
        raise Malformed("the form is not UTF-8") from None
    except ValueError:
        raise Malformed(f"the form has more than {MAX_FIELDS} fields") from None
    if any("\x00" in name or "\x00" in value for name, value in pairs):
        raise Malformed("the form contains a NUL character")
    # Browsers end the lines of a text field by CR and LF, whatever was typed.
    return Form([(name, value.replace("\r\n", "\n")) for name, value in pairs])
