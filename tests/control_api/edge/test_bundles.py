"""What an operation works with is found by the type of its first parameter."""

from __future__ import annotations

import pytest

from control_api.edge.router import Bundles


class Shelf:
    """What one operation works with."""


class Drawer:
    """What the other one works with."""


async def read(shelf: Shelf, caller: object, request: object) -> object:
    return shelf, caller, request


async def open_it(drawer: Drawer, caller: object, request: object) -> object:
    return drawer, caller, request


def test_an_operation_gets_the_bundle_of_its_first_parameters_type() -> None:
    shelf, drawer = Shelf(), Drawer()
    bundles = Bundles(drawer, shelf)
    assert bundles.of(read) is shelf
    assert bundles.of(open_it) is drawer


def test_an_operation_whose_bundle_is_missing_is_named_with_what_it_takes() -> None:
    with pytest.raises(LookupError, match=r"`read` takes a `Shelf` first.*only `Drawer`"):
        Bundles(Drawer()).of(read)
