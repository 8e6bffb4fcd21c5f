// A decision, what is thrown where there is no ALLOW, and which answers count as a decision.
//
// Knows no I/O. The answer's form is that of `POST /v1/context/evaluate`; whatever differs from it
// in any way is no decision.

const EVENT_HEADER = "x-sluice-event-id";
const DECISION_HEADER = "x-sluice-decision";
// An error's message is written by the service; this much of it helps, and more could flood a log.
const MESSAGE_CHARACTERS = 300;

export class Decision {
  constructor(decision, eventId, policyName, reason) {
    this.decision = decision;
    this.eventId = eventId;
    this.policyName = policyName;
    this.reason = reason;
    Object.freeze(this);
  }
}

export class NotAllowed extends Error {
  constructor(sourceId, text) {
    super(text);
    this.sourceId = sourceId;
  }

  get name() {
    return this.constructor.name;
  }
}

export class Denied extends NotAllowed {
  constructor(sourceId, decision) {
    super(
      sourceId,
      `Access to \`${sourceId}\` was denied: ${decision.reason}. Nothing was read. This is a ` +
        "policy decision, so calling again gives the same answer. Continue without this data, " +
        "and tell the user that access was denied, with the event id of the record: " +
        decision.eventId,
    );
    this.decision = decision;
  }

  get eventId() {
    return this.decision.eventId;
  }

  get policyName() {
    return this.decision.policyName;
  }

  get reason() {
    return this.decision.reason;
  }
}

export class Unavailable extends NotAllowed {
  constructor(sourceId, problem) {
    super(
      sourceId,
      `Access to \`${sourceId}\` could not be checked: ${problem}. Nothing was read. Continue ` +
        "without this data, or try again later.",
    );
    this.problem = problem;
  }
}

/** The decision that an answer `{status, headers, body}` is, or why it isn't one. `headers` are
 * pairs with names in lower case, `body` is a Buffer. */
export function readDecision({ status, headers, body }) {
  const found = jsonObject(headers, body);
  if (status !== 200) {
    return `the sidecar answered ${status}${message(found)}`;
  }
  if (found === undefined) {
    return "the answer is no JSON object";
  }
  const fields = ["decision", "event_id", "policy_name", "reason"].map((name) =>
    Object.hasOwn(found, name) ? found[name] : undefined,
  );
  const decision = new Decision(...fields);
  const stated = decision.decision === "ALLOW" || decision.decision === "DENY";
  if (!stated || !decision.eventId || fields.some((each) => typeof each !== "string")) {
    return "the answer is no decision";
  }
  // The service says both twice. If they differ, something has changed the answer.
  const expected = { [DECISION_HEADER]: decision.decision, [EVENT_HEADER]: decision.eventId };
  if (headers.some(([name, value]) => Object.hasOwn(expected, name) && expected[name] !== value)) {
    return "the answer's header and body differ";
  }
  return decision;
}

function jsonObject(headers, body) {
  const types = headers.filter(([name]) => name === "content-type");
  const type = types.length === 1 ? types[0][1].split(";", 1)[0].trim().toLowerCase() : "";
  if (type !== "application/json") {
    return undefined;
  }
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body);
    const found = JSON.parse(text);
    const isObject = typeof found === "object" && found !== null && !Array.isArray(found);
    // Of a member that stands twice, one reader would take the first, another the last.
    return isObject && members(text) === Object.keys(found).length ? found : undefined;
  } catch {
    return undefined;
  }
}

/** How many members the object has that `text`, which is valid JSON, states. */
function members(text) {
  let depth = 0;
  let count = 0;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\]:]/g)) {
    if (token === "{" || token === "[") {
      depth += 1;
    } else if (token === "}" || token === "]") {
      depth -= 1;
    } else if (token === ":" && depth === 1) {
      count += 1;
    }
  }
  return count;
}

/** What an error body says, on one line. */
function message(body) {
  const said = body === undefined ? [] : [body.message, body.details];
  const text = said.filter((each) => typeof each === "string").join(": ");
  const line = text.slice(0, MESSAGE_CHARACTERS).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, " ");
  return line ? `: ${line}` : "";
}
