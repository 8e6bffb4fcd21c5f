/**
 * Asks Sluice before an agent reads data, and runs nothing without an ALLOW.
 *
 *     guard         `Guard`: the question, and what can be put behind it
 *     decisions     a decision, the two errors, and which answers count as a decision
 *     attribution   for whom the agent acts: user, session and task of the current context
 *     exchange      one HTTP request and its answer, within one deadline
 *
 * Nothing is decided in this process. `index.d.ts` describes all of it.
 */

export { acting, propagationHeaders } from "./attribution.js";
export { Decision, Denied, NotAllowed, Unavailable } from "./decisions.js";
export { Guard } from "./guard.js";
