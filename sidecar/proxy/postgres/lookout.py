"""Runs parts of a judged statement with looks around them, and has decided what the looks show
before anything of the answer is returned.

    plain    the statement names tables and the server's own code alone, which is proven at the
             server: what it reads is what it has locked once it is bound, and nothing can change
    whole    in one round trip a savepoint, the names in the text resolved, each part with a look
             behind it, the counters, and the savepoint released. After an error the transaction
             goes back to the savepoint and is looked at once more: the error itself tells
             something about what was read

A statement that turns out not to be plain is run anew as a whole one. Knows looks and the order of
steps. Knows nothing of what is allowed.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from policies.statement import Look
from sidecar.postgres.frames import Frame
from sidecar.protocols.postgres.names import QualifiedName
from sidecar.proxy.postgres import looks
from sidecar.proxy.postgres.conversation import Conversation, Outcome, OwnStatements, Step
from sidecar.proxy.postgres.judge import Judgement, Seen
from sidecar.proxy.postgres.looks import Looks, Relation
from sidecar.proxy.postgres.registry import Prepared
from sidecar.proxy.postgres.transaction import Transaction


class Part(NamedTuple):
    """A part of a statement: the step, and the name of the look behind it, None if none follows."""

    step: Step
    look: Look | None = None


class CannotLook(Exception):
    """the server does not say what was read"""


class Lookout:
    """Looks at what one session's statements read. `own` are our statements."""

    def __init__(
        self, conversation: Conversation, transaction: Transaction, own: OwnStatements
    ) -> None:
        self._conversation = conversation
        self._transaction = transaction
        self._own = own
        self._looks = Looks(own)
        self._behind_code: set[int] = set()
        """The oids of the relations that code of the database has read in this session. The server
        may keep what such code returned, and use it in a later plan without reading again."""

    async def plain(
        self, judgement: Judgement, prepared: Prepared, parts: Sequence[Part]
    ) -> Outcome | None:
        """Run the parts of a statement that names no foreign code, and return the answers once it
        is decided. Returns None if more than the names in its text may be read, or after an error:
        then nothing was decided, and the parts have to be run as a whole. Raises as `run` does."""
        transaction = self._transaction
        inside = transaction.agents or transaction.ours
        probe = self._looks.probe(prepared.statement)
        script = _Script(self._looks, prepared.statement.relations if transaction.locked else ())
        if inside:
            script.add("enter", transaction.save())
        script.add_names()
        for index, part in enumerate(parts):
            script.add(index, part.step)
            if index + 1 < len(parts):
                script.add(f"probe {index}", probe)
        script.add("locks 0", self._looks.locks())
        script.add("probe", probe)
        if inside:
            script.add("leave", transaction.leave())
        outcome = await self._conversation.run(script.steps)
        answers = script.answers(outcome)
        probes = [frames for role, frames in answers.items() if str(role).startswith("probe")]
        locked = looks.relations(answers.get("locks 0", ()))
        own = [each for each in locked if not each.part]
        new = [each for each in own if each.oid not in transaction.locked]
        named = looks.relations(answers.get(_NAMES, ()))
        known = outcome.error is None and not any(map(looks.is_foreign, probes))
        if not known or not all(each.plain for each in (*new, *named)):
            prepared.whole = True
            await self._undo(outcome, inside=inside)
            return None
        look: Look = "parse" if judgement.only_asks else "bind"
        seen = [Seen(each, look) for each in (*named, *new)]
        if inside:
            transaction.locked |= {each.oid: each for each in locked}
        await self._decide(judgement, seen)
        return _of_parts(answers, len(parts), None)

    async def _undo(self, outcome: Outcome, *, inside: bool) -> None:
        """Make undone what was run: nothing of it is released."""
        if not inside:
            if outcome.error is None:
                await self._conversation.sync()
            return
        if outcome.error is None:
            # The savepoint was released; what is locked stays so, and is looked at anew.
            return
        back = await self._conversation.run([self._transaction.back(), self._transaction.leave()])
        if back.error is not None:
            raise CannotLook
        self._conversation.recovered()

    async def run(
        self,
        judgement: Judgement,
        parts: Sequence[Part],
        names: Sequence[QualifiedName] = (),
        hold: int | None = None,
    ) -> Outcome:
        """Run the parts, decide about what they read, and return the answers to them. `names` are
        those in the statement's text. Raises `Denied`, `CannotLook`, `SpoolError`, `TooMuchHeld`
        and `ConnectionLost`."""
        transaction = self._transaction
        # Its code may replace our prepared statements by others, and runs before the next look.
        self._own.distrust()
        functions = [each.name for each in judgement.statement.functions]
        script = _Script(self._looks, names, functions)
        for step in transaction.enter():
            script.add("enter", step)
        if transaction.counted is None:
            script.add(_BASELINE, self._looks.counters())
        script.add_names()
        if self._behind_code:
            script.add(_BEHIND, self._looks.names(sorted(self._behind_code)))
        for index, part in enumerate(parts):
            script.add(index, part.step)
            if part.look is not None:
                script.looks.append((f"locks {index}", part.look))
                script.add(f"locks {index}", self._looks.locks())
        script.add(_COUNTERS, self._looks.counters())
        script.add("leave", transaction.leave())
        outcome = await self._conversation.run(script.steps, hold)
        answers = script.answers(outcome)
        seen = self._seen(judgement, script, answers)
        if outcome.error is not None:
            seen += await self._after_error(script, answers)
        seen += await self._counted(answers)
        self._behind_code |= {each.relation.oid for each in seen if each.look in _LATE}
        await self._decide(judgement, seen)
        return _of_parts(answers, len(parts), outcome.error)

    async def _decide(self, judgement: Judgement, seen: Sequence[Seen]) -> None:
        judgement.reads |= {each.relation.oid: each.relation for each in seen}
        self._transaction.callers.add(judgement.who)
        await judgement.decide(seen)

    def _seen(self, judgement: Judgement, script: "_Script", answers: "_Answers") -> list[Seen]:
        """Return what the names and the locks show."""
        transaction = self._transaction
        before = list(transaction.locked.values())
        named = looks.relations(answers.get(_NAMES, ()))
        seen = [Seen(each, "held") for each in judgement.reads.values()]
        seen += [Seen(each, "parse") for each in named]
        seen += [Seen(each, "held") for each in looks.relations(answers.get(_BEHIND, ()))]
        for role, look in script.looks:
            for each in looks.relations(answers.get(role, ())):
                if each.oid not in transaction.locked:
                    transaction.locked[each.oid] = script.locked[each.oid] = each
                    seen.append(Seen(each, look))
        # What is locked already may be read again, unless the text can lead to nothing but what
        # it names.
        direct = all(each.plain for each in named) and not judgement.statement.foreign
        if not direct or transaction.callers - {judgement.who}:
            seen += [Seen(each, "held") for each in before]
        return [each for each in seen if not each.relation.part]

    async def _after_error(self, script: "_Script", answers: "_Answers") -> list[Seen]:
        """Go back to the savepoint, and return what the names stand for now; add the counters to
        `answers`."""
        steps = [self._transaction.back(), self._looks.counters()]
        if script.names:
            # The error may come before anything is locked, and tell about what is behind a view.
            steps.append(self._looks.behind(script.names))
        steps.append(self._transaction.leave())
        outcome = await self._conversation.run(steps)
        if outcome.error is not None:
            raise CannotLook
        self._conversation.recovered()
        for oid in script.locked:
            # Its lock went with the savepoint.
            del self._transaction.locked[oid]
        answers[_COUNTERS] = outcome.answers[1]
        named = looks.relations(outcome.answers[2]) if script.names else []
        return [Seen(each, "parse") for each in named]

    async def _counted(self, answers: "_Answers") -> list[Seen]:
        """Return the relations of which blocks were fetched since the last look."""
        transaction = self._transaction
        before = transaction.counted
        if before is None:
            before = looks.counts(answers.get(_BASELINE, ()))
        after = looks.counts(answers.get(_COUNTERS, ()))
        transaction.counted = after
        unknown = [oid for oid in looks.risen(before, after) if oid not in transaction.locked]
        if not unknown:
            return []
        outcome = await self._conversation.run([self._looks.names(unknown)])
        if outcome.error is not None:
            raise CannotLook
        return [Seen(each, "execute") for each in looks.relations(outcome.answers[0])]


_Role = int | str
_Answers = dict[_Role, Sequence[Frame]]
_NAMES, _BASELINE, _COUNTERS, _BEHIND = "names", "baseline", "counters", "behind"
_LATE = ("bind", "execute")


class _Script:
    """The steps of one round trip, each with the role of its answer. `names` are those in the
    statement's text, `functions` those of the functions that it calls."""

    def __init__(
        self, own: Looks, names: Sequence[QualifiedName], functions: Sequence[str] = ()
    ) -> None:
        self._own = own
        self.names = names
        self._functions = functions
        self.looks: list[tuple[str, Look]] = []
        """The roles of the looks at the locks, in order."""
        self.locked: dict[int, Relation] = {}
        """The relations that these looks showed for the first time, by oid."""
        self.steps: list[Step] = []
        self._roles: list[_Role] = []

    def add(self, role: _Role, step: Step) -> None:
        self._roles.append(role)
        self.steps.append(step)

    def add_names(self) -> None:
        if self.names or self._functions:
            self.add(_NAMES, self._own.resolve(self.names, self._functions))

    def answers(self, outcome: Outcome) -> _Answers:
        """Return the answers by role. The one that ended with an error is left out."""
        whole: Iterable[Sequence[Frame]] = outcome.answers
        if outcome.error is not None:
            whole = outcome.answers[:-1]
        return dict(zip(self._roles, whole, strict=False))


def _of_parts(answers: _Answers, count: int, error: Frame | None) -> Outcome:
    return Outcome([list(answers.get(index, ())) for index in range(count)], error)
