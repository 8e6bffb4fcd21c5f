"""Runs parts of a judged statement with looks around them, and has decided what the looks show
before anything of the answer is returned.

    plain    the statement names tables and the server's own code alone, which is proven at the
             server before it is bound: what it reads is what it has locked then, and nothing can
             change
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
from sidecar.proxy.pipeline.authorizer import Denied
from sidecar.proxy.postgres import looks
from sidecar.proxy.postgres.conversation import Conversation, Outcome, OwnStatements, Step
from sidecar.proxy.postgres.judge import Judgement, Seen
from sidecar.proxy.postgres.looks import Looks, Relation
from sidecar.proxy.postgres.registry import Prepared
from sidecar.proxy.postgres.transaction import FAIL, Transaction


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
        self.code_denied = False
        """True if code of the database may have run for a statement that was then denied."""
        self._behind_code: set[int] = set()
        """The oids of the relations that code of the database has read in this session. The server
        may keep what such code returned, and use it in a later plan without reading again."""

    async def plain(
        self, judgement: Judgement, prepared: Prepared, parts: Sequence[Part]
    ) -> Outcome | None:
        """Run the parts of a statement that names no foreign code, and return the answers once it
        is decided. Returns None if more than the names in its text may be read, or after an error:
        then nothing was decided, and the parts have to be run as a whole. Raises as `run` does."""
        # INVARIANT: what is not proven to be plain is not bound here. Code that runs at Bind leaves
        # its traces once: the server may keep what it returned in the plan.
        parsed = 1 + max((at for at, part in enumerate(parts) if part.look == "parse"), default=-1)
        proof = _Script(self._looks, prepared.statement.relations)
        if parsed:
            proof.add("note", self._looks.note())
        for index in range(parsed):
            proof.add(index, parts[index].step)
        proof.add_names()
        proof.add(_PROBE, self._looks.probe(prepared.statement, prepared.types))
        answers, proven = await self._plain_trip(proof)
        probed = looks.probed(answers.get(_PROBE, ()))
        named = looks.relations(answers.get(_NAMES, ()))
        foreign = probed.foreign or not all(
            each.plain or each.oid < looks.FIRST_NORMAL_OID for each in named
        )
        # A name may have stood for foreign code while it was resolved, and be gone.
        if not proven or foreign or (parsed and probed.changed):
            prepared.whole |= proven and foreign
            return None
        script = _Script(self._looks)
        for index in range(parsed, len(parts)):
            script.add(index, parts[index].step)
        script.add("locks 0", self._looks.locks())
        script.add(_PROBE, self._looks.probe(prepared.statement, prepared.types))
        later, done = await self._plain_trip(script)
        locked = looks.relations(later.get("locks 0", ()))
        transaction = self._transaction
        new = [each for each in locked if not each.part and each.oid not in transaction.locked]
        foreign = looks.probed(later.get(_PROBE, ())).foreign
        if not done or foreign or not all(each.plain for each in new):
            prepared.whole |= done
            await self._undo(failed=not done)
            return None
        look: Look = "parse" if judgement.only_asks else "bind"
        if transaction.open:
            transaction.locked |= {each.oid: each for each in locked}
        await self._decide(judgement, [Seen(each, look) for each in (*named, *new)])
        return _of_parts({**answers, **later}, len(parts), None)

    async def _plain_trip(self, script: "_Script") -> tuple["_Answers", bool]:
        """Run the steps, and return their answers and whether there was no error. After one, the
        transaction goes on, if it is not the server's own around the agent's messages alone."""
        transaction = self._transaction
        inside = transaction.open
        if inside:
            for step in reversed(transaction.enter()):
                script.prepend("enter", step)
            script.add("leave", transaction.leave())
        outcome = await self._conversation.run(script.steps)
        if inside and outcome.error is not None:
            back = await self._conversation.run([transaction.back(), transaction.leave()])
            if back.error is not None:
                raise CannotLook
            self._conversation.recovered()
        return script.answers(outcome), outcome.error is None

    async def _undo(self, *, failed: bool) -> None:
        """Make undone what was bound, also what the server keeps in its plans."""
        # Inside a transaction of the agent, a denial makes it undone.
        if not failed and not self._transaction.open:
            await self._conversation.run([FAIL])
        if (await self._conversation.run([self._own.run("replan")])).error is not None:
            raise CannotLook

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
        try:
            await judgement.decide(seen)
        except Denied:
            self.code_denied |= any(each.look != "parse" for each in seen)
            raise

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
_PROBE = "probe"
_LATE = ("bind", "execute")


class _Script:
    """The steps of one round trip, each with the role of its answer. `names` are those in the
    statement's text, `functions` those of the functions that it calls."""

    def __init__(
        self, own: Looks, names: Sequence[QualifiedName] = (), functions: Sequence[str] = ()
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

    def prepend(self, role: _Role, step: Step) -> None:
        self._roles.insert(0, role)
        self.steps.insert(0, step)

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
