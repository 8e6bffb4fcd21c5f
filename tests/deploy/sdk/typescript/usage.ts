// What a user may write, and what the compiler must refuse. `test_types.py` compiles it.

import {
  Decision,
  Denied,
  Guard,
  NotAllowed,
  Unavailable,
  acting,
  propagationHeaders,
} from "sluice-guard";

const guard = new Guard("http://h", "k", "a", "r", { timeout: 1, ca: "" });
guard.close();
Guard.fromEnviron({ SLUICE_GUARD_URL: undefined });

async function payroll(who: string): Promise<number> {
  return who.length;
}

// A guarded function has the arguments of its body, and gives a promise.
export const search: (words: string, count?: number) => Promise<string[]> = guard.source(
  "contracts",
  "high",
)(async (words: string, _count?: number) => [words]);
export const awaited: Promise<number> = guard.source("contracts")((a: number) => a)(1);
export const placed: Promise<number> = guard.source((who: string) => who, "low")(payroll)("x");
// @ts-expect-error a number is no text
search(1);
// @ts-expect-error the body takes a text
guard.source((id: number) => `rest://${id}`)(payroll);
// @ts-expect-error no such level
guard.source("contracts", "higher");

// An async generator stays one.
const items = guard.source("contracts")(async function* (count: number) {
  yield count;
});
for await (const each of items(1)) {
  each.toFixed();
}

// A tool may answer with a text where it is asked to.
export const plain: Promise<number> = guard.tool(payroll)("ann");
export const answered: Promise<number | string> = guard.tool(payroll, { answer: true })("ann");
// @ts-expect-error it may be a text
export const wrong: Promise<number> = guard.tool(payroll, { answer: true })("ann");
guard.tool(payroll, { source: (who) => who.toUpperCase(), sensitivity: "low" });

// The errors have what the README says.
try {
  const decision: Decision = await guard.check("s", "low", { query: "x", sourceType: "sdk" });
  decision.eventId.trim();
  // @ts-expect-error a decision does not change
  decision.decision = "ALLOW";
} catch (error) {
  if (error instanceof Denied) {
    error.eventId.trim() + error.policyName + error.reason + error.decision.reason;
  } else if (error instanceof Unavailable) {
    error.problem.trim();
  } else if (error instanceof NotAllowed) {
    error.sourceId.trim() + error.message;
  }
}
// @ts-expect-error a decision is not made by hand
new Decision();

export const returned: number = acting({ user: "u", headers: { a: ["b"], c: undefined } }, () => 7);
export const headers: Record<string, string> = propagationHeaders();
