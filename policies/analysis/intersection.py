"""The names that two patterns both match, as patterns again. Knows nothing of what names mean."""

from policies.analysis.positions import Spend
from policies.definitions.wildcard import Step, Steps, steps

_Place = tuple[int, int]
"""How many steps of each of the two patterns have been taken."""
_Move = tuple[Step, _Place]


def common(one: str, other: str, spend: Spend) -> tuple[str, ...]:
    """Patterns that together match exactly the names that both match; an exact name is one, too.
    There can be exponentially many: `spend` raises."""
    both = _Both(steps(one), steps(other), spend)
    found: dict[str, None] = {}
    pending = [("", (0, 0))]
    while pending:
        text, place = pending.pop()
        if place == both.end:
            found[text + "*" * both.open_end] = None
        for step, there in both.moves(place):
            if there in both.useful:
                spend(1 + len(text) // 64)
                pending.append((text + _text(step), there))
    return tuple(found)


def meet(one: str, other: str, spend: Spend) -> bool:
    """Whether any name matches both patterns."""
    both = _Both(steps(one), steps(other), spend)
    return (0, 0) in both.useful


class _Both:
    """Two patterns at once: what takes a step of one also takes a step of the other, or is in a run
    of the other."""

    def __init__(self, one: Steps, other: Steps, spend: Spend) -> None:
        self._one, self._other = one, other
        self.end = len(one.steps), len(other.steps)
        self.open_end = one.open_end and other.open_end
        self.useful = self._leading_to_the_end(spend)

    def moves(self, place: _Place) -> list[_Move]:
        at, there = place
        mine = self._one.steps[at] if at < self.end[0] else None
        its = self._other.steps[there] if there < self.end[1] else None
        found: list[_Move] = []
        if mine and its and (mine.character == its.character or None in (mine[0], its[0])):
            # Both take the same character, after a run if both allow one.
            met = its.character if mine.character is None else mine.character
            found.append((Step(met, mine.after_run and its.after_run), (at + 1, there + 1)))
        # One pattern is in a run while the other takes its next step.
        if its and (mine.after_run if mine else self._one.open_end):
            found.append((its, (at, there + 1)))
        if mine and (its.after_run if its else self._other.open_end):
            found.append((mine, (at + 1, there)))
        return found

    def _leading_to_the_end(self, spend: Spend) -> set[_Place]:
        """The places that are reached from the start, and from which the end is."""
        before: dict[_Place, list[_Place]] = {(0, 0): []}
        pending = [(0, 0)]
        while pending:
            place = pending.pop()
            spend(2)
            for _, there in self.moves(place):
                if there not in before:
                    before[there] = []
                    pending.append(there)
                before[there].append(place)
        if self.end not in before:
            return set()
        useful = {self.end}
        pending = [self.end]
        while pending:
            for place in before[pending.pop()]:
                if place not in useful:
                    useful.add(place)
                    pending.append(place)
        return useful


def _text(step: Step) -> str:
    return ("*" if step.after_run else "") + (step.character or "?")
