"""Gives each operation what it works with, found by the type of its first parameter. Knows no
feature."""

from control_api.edge.route import Operation, bundle_type


class Bundles:
    """The objects that operations work with, one of each type."""

    def __init__(self, *bundles: object) -> None:
        self._by_type = {type(bundle): bundle for bundle in bundles}

    def of(self, operation: Operation) -> object:
        """What the operation works with. Raises `LookupError` if there is no object of the type
        that it takes."""
        needed = bundle_type(operation)
        try:
            return self._by_type[needed]
        except KeyError:
            name = getattr(operation, "__name__", operation)
            known = ", ".join(f"`{each.__name__}`" for each in self._by_type)
            raise LookupError(
                f"`{name}` takes a `{needed.__name__}` first, and there are only {known}: give the "
                "assembly one"
            ) from None
