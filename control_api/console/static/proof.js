// Verifies in the reader's browser that the decision on this page is in the log: what is shown is
// what was hashed, the hash leads to the checkpoint's root, the log's key signed the checkpoint, and
// the log only grew since this browser last looked. Shows each step; says no more than it checked.
import { Refused, b64, decode, hex, unb64 } from "./encoding.js";
import { opens, parseProof, readEntry, timeOf } from "./entries.js";
import { Unconfirmed, checkGrowth, checkIncarnation, numberOf } from "./history.js";
import { remember, remembered } from "./memory.js";
import { canVerify, endorsed, keyText, parseKey, verifyCheckpoint } from "./notes.js";
import { leafHash, verifyInclusion } from "./tree.js";

const WAIT = 3000;
const section = document.getElementById("proof");
const tenant = section?.dataset.tenant;
const event = new URLSearchParams(location.search).get("id");
const byId = (id) => document.getElementById(id);

function tell(tone, title, text) {
  const verdict = byId("verdict");
  verdict.className = `notice ${tone}`;
  verdict.setAttribute("role", tone === "bad" ? "alert" : "status");
  byId("verdict-title").textContent = title;
  byId("verdict-text").textContent = text;
}

function step(text) {
  const item = byId("step").content.firstElementChild.cloneNode(true);
  item.textContent = text;
  byId("steps").append(item);
}

async function ask(address) {
  const answer = await fetch(address, { headers: { Accept: "application/json" } });
  const body = await answer.json();
  if (!answer.ok) {
    const error = new Error(body.message ?? `status ${answer.status}`);
    throw Object.assign(error, { status: answer.status });
  }
  return body;
}

/** Each member of the event as the page must show it, by the entry's own bytes. */
function shownBy(entry, leaf, opened) {
  const { request, response, statement } = entry.pub;
  return {
    event_id: entry.eid,
    seq: entry.seq,
    hash: hex(leaf),
    timestamp: timeOf(entry),
    sidecar_id: entry.src?.id,
    decision: response.decision,
    policy_name: response.policy_name,
    policy_version: response.policy_version,
    reason: response.reason,
    check: response.check,
    agent_id: request.agent_id,
    agent_role: request.agent_role,
    source_id: request.source_id,
    source_type: request.source_type,
    sensitivity_level: request.sensitivity_level,
    session_id: request.session_id,
    task_type: request.task_type,
    user_id: opened.user_id?.[1],
    query: opened.query?.[1],
    parameters: opened.parameters?.[1],
    statement_id: statement?.id,
    statement_look: statement?.look,
    statement_fingerprint: statement?.fingerprint,
    statement_digest: opened.statement_digest?.[1],
  };
}

const lines = (text) => text.replace(/\r\n?/g, "\n");

function compare(entry, leaf, opened) {
  const expected = shownBy(entry, leaf, opened);
  const fields = document.querySelectorAll("[data-field]");
  for (const field of fields) {
    const value = expected[field.dataset.field];
    const shown = field.dataset.none ? undefined : field.textContent;
    // A browser reads every end of a line in a page as LF.
    const proven = value === undefined || value === null ? undefined : lines(String(value));
    if (shown !== proven) {
      throw new Refused(
        `the page shows ${field.dataset.field} as "${shown ?? "none"}", the entry has "${proven ?? "none"}"`,
      );
    }
  }
  step(`All ${fields.length} values on this page are those of the entry.`);
}

/** Says which witnesses cosigned. Returns the keys to remember: the first ones that were seen. */
function showWitnesses(found, keys, pinned) {
  for (const { text, name } of keys) {
    const cosigned = found.witnesses.find((each) => each.name === name);
    const since = pinned?.includes(text)
      ? "by a key that this browser knows from before"
      : "by a key that the service names, and this browser has not seen before";
    const time = cosigned && new Date(Number(cosigned.time) * 1000).toISOString().slice(0, 19);
    step(cosigned ? `Cosigned by the witness ${name} at ${time}Z, ${since}.` : `Not cosigned yet by the witness ${name}.`);
  }
  return pinned?.length ? pinned : keys.map((each) => each.text);
}

/** Verifies all. Returns `{found, next}`: the checkpoint, and what to remember of it. */
async function verify() {
  const given = await ask(section.dataset.proof);
  const proof = parseProof(given.proof);
  if (proof.entry === null) throw new Refused("the proof carries no entry");
  byId("hashed-text").textContent = JSON.stringify(decode(proof.entry), null, 2);
  byId("hashed-hex").textContent = hex(proof.entry);
  const entry = readEntry(proof.entry);
  if (BigInt(entry.seq) !== proof.index) throw new Refused("the entry is not the one proven");

  const opened = given.openings ?? {};
  for (const [path, opening] of Object.entries(opened)) {
    if (!(await opens(entry.cm, path, opening))) {
      throw new Refused(`the stored value of \`${path}\` is not the one that the entry commits to`);
    }
  }
  if (entry.eid !== event) throw new Refused(`the entry in its place is event ${entry.eid}`);
  const leaf = await leafHash(proof.entry);
  compare(entry, leaf, opened);
  step(`Its ${proof.entry.length} bytes hash to ${hex(leaf).slice(0, 16)}…`);

  const log = entry.log;
  if (log.split("/").at(-1) !== tenant) throw new Refused(`the entry is of another log: ${log}`);
  const known = remembered(tenant)?.size ? remembered(tenant) : null;
  if (known && known.log !== log) {
    throw new Refused(`this browser knows the log ${known.log}, and this is another one: ${log}`);
  }
  const trusted = await endorsed(unb64(known?.key ?? given.log_key), given.log_key_history);
  const texts = new Set([...(known?.witnesses ?? []), ...given.witnesses]);
  const witnesses = [];
  for (const text of texts) witnesses.push({ text, ...(await parseKey(text)) });
  const found = await verifyCheckpoint(proof.note, trusted, witnesses);
  if (numberOf(found.origin, log) === null) {
    throw new Refused(`the checkpoint is that of the log ${found.origin}`);
  }
  const key = await keyText(found.origin, found.signers.at(-1));
  const { ok, why, steps } = await verifyInclusion(leaf, proof.index, found.size, proof.path, found.root);
  if (!ok) throw new Refused(why);
  step(`${steps.length} more hashes lead to the root ${hex(found.root).slice(0, 16)}… of ${found.size} entries.`);
  step(`The checkpoint is signed by ${key}.`);
  if (known) step("This browser knows that key, or the one that endorsed it, from before.");
  else step("This browser sees the log's key for the first time: compare it with what its operator publishes.");
  const seen = showWitnesses(found, witnesses, known?.witnesses);

  const next = {
    log, key: known?.key ?? given.log_key, witnesses: seen,
    origin: found.origin, size: String(found.size), root: b64(found.root),
  };
  if (known && (known.origin ?? log) !== found.origin) {
    await checkIncarnation(known, found, { log, trusted, text: given.incarnation, next });
  } else if (known) {
    const told = await checkGrowth(known, found, next, (from, to) =>
      ask(`${section.dataset.growth}?from=${from}&to=${to}`));
    if (told) step(told);
  }
  return { found, next };
}

/** Once more, if another tab has verified a newer checkpoint since the proof was fetched. */
async function settled() {
  try {
    return await verify();
  } catch (error) {
    if (!error.smaller) throw error;
    byId("steps").replaceChildren();
    return verify();
  }
}

async function run() {
  const able = await canVerify();
  if (able === "insecure") {
    tell("warn", "This browser can't verify here", "It verifies only over HTTPS or on localhost. Open the console there, or download the evidence.");
    return;
  }
  if (able === "old") {
    tell("warn", "This browser can't verify", "It knows no Ed25519. Use a newer one, or download the evidence.");
    return;
  }
  tell("info", "Verifying", "This browser recomputes each hash.");
  byId("steps").replaceChildren();
  byId("confirm").hidden = true;
  const seq = document.querySelector("[data-field=seq]").textContent;
  try {
    const { found, next } = await settled();
    remember(tenant, next, event);
    tell("good", "Verified by this browser", `Entry ${seq} is in the log, as shown, among ${found.size} signed entries.`);
  } catch (error) {
    if (error instanceof Unconfirmed) {
      tell("warn", error.title, `Entry ${seq} is in the log, as shown. ${error.message}`);
      byId("confirm").hidden = false;
      byId("confirm-button").onclick = () => {
        remember(tenant, error.next, event);
        run();
      };
    } else if (error.status === 409 && section.dataset.fault) {
      tell("bad", "Not verified", `No signed checkpoint covers event ${event}, entry ${seq}, and the service's own verification found a fault there: ${section.dataset.fault}`);
    } else if (error.status === 409) {
      tell("info", "Not signed yet", "The next checkpoint follows within seconds; this page tries again.");
      setTimeout(run, WAIT);
    } else if (error instanceof Refused || error.status === 500 || error.status === 404) {
      const text = `Event ${event}, entry ${seq}: ${error.message}`;
      remember(tenant, { ...remembered(tenant), failed: { event, text } });
      tell("bad", "FAILED", text);
    } else {
      tell("warn", "Not verified", `The proof could not be fetched: ${error.message}`);
    }
  }
}

if (section) {
  byId("steps").replaceChildren();
  run();
}
