"""Every action of the table, once, by the keyboard alone."""

from __future__ import annotations

import pytest

from control_api.console.page import Page
from control_api.console.pages import PAGES
from tests.control_api.console.browser.keyboard import Keyboard
from tests.control_api.console.browser.recipes import RECIPES
from tests.control_api.console.browser.visitors import Visitors, sign_in
from tests.runner import tiers
from tests.support.browsing import Watched
from tests.support.company_week import CompanyWeek

ACTIONS = [page for page in PAGES if page.method == "POST"]


def test_every_action_has_a_recipe_and_no_recipe_is_left_over() -> None:
    assert {page.path for page in ACTIONS} == set(RECIPES)


@tiers.rotating(0, 24)
@pytest.mark.parametrize("action", ACTIONS, ids=lambda page: page.path)
async def test_an_action_is_done_by_the_keyboard(
    action: Page, world: CompanyWeek, watched: Watched, visitors: Visitors
) -> None:
    recipe = RECIPES[action.path]
    if recipe.by == "someone":
        tab = await watched.page()
        await sign_in(tab, world.keys["admin"])
    else:
        tab = await visitors.page(watched, recipe.by)
    query = recipe.query(world)
    fragment = recipe.fragment(world)
    await tab.goto(recipe.address(query) + (f"#{fragment}" if fragment else ""))
    if recipe.first is not None:
        before, given = recipe.first
        await Keyboard(tab).send(before, given(world), {})
        await tab.locator(f'form[action="{action.path}"]').wait_for()
    fields, held = recipe.fields(world), recipe.held(query)
    answer = await Keyboard(tab).send(action.path, fields, held, recipe.button)
    refused = [each.text_content() for each in await tab.locator("[role=alert]").all()]
    assert answer.status in recipe.statuses, [await each for each in refused]
    assert refused == []
