"""Uses forms as people do who have no mouse, by Tab, letters, arrows and Enter. Knows no page."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Page, Response

_MOST_STOPS = 500
# What has the focus, as far as the form with this action and these hidden values is concerned.
_FOCUS = """([action, held, button]) => {
  const here = document.activeElement;
  const wanted = form => form
    && new URL(form.getAttribute("action") || location.href, location).pathname === action
    && Object.entries(held).every(([name, value]) =>
      [...form.elements].some(each => each.name === name && each.value === value));
  const forms = [...document.forms].filter(wanted);
  const shuts = each => each && forms.some(form => each.contains(form)
    || [...form.elements].some(field => each.contains(field)));
  const opens = here.getAttribute("aria-controls") ?? here.getAttribute("commandfor")
    ?? here.getAttribute("popovertarget") ?? here.dataset.dialog;
  const target = opens && document.getElementById(opens);
  const submits = wanted(here.form) && ["submit", "image"].includes(here.type);
  const named = !button || here.textContent.trim() === button;
  return {
    forms: forms.length,
    opens: (here.localName === "summary" && !here.parentElement.open && shuts(here.parentElement))
      || Boolean(target && !target.open && shuts(target)),
    field: wanted(here.form) && !submits ? here.name : null,
    kind: here.localName === "input" ? here.type : here.localName,
    value: here.value,
    submits: Boolean(submits && named),
  };
}"""
_CHOICES = "name => [...document.activeElement.options].map(each => [each.value, each.text.trim()])"


class Keyboard:
    """The keyboard of a page."""

    def __init__(self, page: Page) -> None:
        self._page = page

    async def send(
        self, action: str, fields: dict[str, str], held: dict[str, str], button: str = ""
    ) -> Response:
        """Fills in and sends the form with this action, and these hidden values, by the keyboard
        alone: the answer. Fails if Tab does not lead to each of `fields` and to the button."""
        left = dict(fields)
        for _ in range(_MOST_STOPS):
            await self._page.keyboard.press("Tab")
            focus: dict[str, Any] = await self._page.evaluate(_FOCUS, [action, held, button])
            assert focus["forms"], f"{self._page.url} has no form for {action} with {held}"
            if focus["opens"]:
                await self._page.keyboard.press("Enter")
            elif focus["field"] in left and await self._fill(focus, left[focus["field"]]):
                del left[focus["field"]]
            elif focus["submits"] and not left:
                async with self._page.expect_response(_answer_to(action)) as answered:
                    await self._page.keyboard.press("Enter")
                answer = await answered.value
                await self._page.wait_for_load_state()
                return answer
        raise AssertionError(f"Tab does not lead to {sorted(left) or 'the button'} of {action}")

    async def _fill(self, focus: dict[str, Any], value: str) -> bool:
        keys = self._page.keyboard
        if focus["kind"] == "checkbox":
            if focus["value"] != value:
                return False  # one of several with this name
            await keys.press("Space")
        elif focus["kind"] == "radio":
            await self._arrow(value)
        elif focus["kind"] == "select":
            await self._choose(value)
        else:
            await keys.press("Control+A")
            await keys.insert_text(value)
        return True

    async def _arrow(self, value: str) -> None:
        for _ in range(20):
            checked = "document.activeElement.checked && document.activeElement.value"
            if await self._page.evaluate(checked) == value:
                return
            await self._page.keyboard.press("ArrowDown")
        raise AssertionError(f"no arrow leads to `{value}`")

    async def _choose(self, value: str) -> None:
        choices = [each[0] for each in await self._page.evaluate(_CHOICES)]
        await self._page.keyboard.press("Home")
        for _ in range(choices.index(value)):
            await self._page.keyboard.press("ArrowDown")
        assert await self._page.evaluate("document.activeElement.value") == value


def _answer_to(action: str) -> Any:
    def is_it(answer: Response) -> bool:
        path = answer.url.partition("?")[0]
        return answer.request.method == "POST" and path.endswith(action)

    return is_it
