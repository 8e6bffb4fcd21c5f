// The live tail of decisions: new rows on top, as the server sends them. By `fetch`, because an
// EventSource can't say why it was refused, and does not notice a connection that went silent.

const MOST_ROWS = 200;
const RETRY = 2000; // milliseconds before the next attempt, doubled up to the most
const MOST_RETRY = 30000;
const SILENCE = 20000; // the server says that it is alive every five seconds
const tail = document.getElementById("tail");
const rows = document.getElementById("rows");
const state = document.getElementById("tail-state");
const figures = document.getElementById("tail-figures");
const button = document.getElementById("tail-pause");
const clone = (id) => document.getElementById(id).content.firstElementChild.cloneNode(true);

let connection = null;
let last = null; // the entry to go on from
let standing = "Connecting";
let paused = false;
let waiting = [];
let leftOut = 0;
let arrived = null;

// The address of this page with one more value to search by.
function filtered(name, value) {
  const address = new URL(location.href);
  address.searchParams.set(name, value);
  address.searchParams.delete("cursor");
  return address.pathname + address.search;
}

function value(cell, name, text) {
  if (!text) {
    cell.append(clone("nothing"));
    return;
  }
  const link = clone("value");
  link.href = filtered(name, text);
  link.firstElementChild.textContent = text;
  cell.append(link);
}

function rowOf(event) {
  const row = clone("row");
  const [time, decision, agent, role, user, source, level, cause] = row.cells;
  time.firstElementChild.href = `/console/decision?${new URLSearchParams({ id: event.event_id })}`;
  const shown = time.querySelector("time");
  shown.dateTime = event.timestamp;
  shown.textContent = event.timestamp.slice(0, 19).replace("T", " ");
  if (event.time_doubtful) time.append(" ", clone("time-mark"));
  const badge = decision.firstElementChild;
  badge.textContent = event.decision;
  badge.classList.add(event.decision === "ALLOW" ? "good" : "bad");
  value(agent, "agent_id", event.agent_id);
  if (event.agent_foreign) agent.append(" ", clone("agent-mark"));
  value(role, "agent_role", event.agent_role);
  value(user, "user_id", event.user_id);
  value(source, "source_id", event.source_id);
  level.firstElementChild.textContent = event.sensitivity_level;
  level.firstElementChild.classList.add(event.sensitivity_level);
  value(cause, "policy_name", event.policy_name);
  if (event.check) {
    const check = clone("cause");
    check.textContent = event.check;
    cause.append(" ", check);
  }
  return row;
}

function show() {
  // Events arrive in the log's order; the newest belongs on top.
  for (const event of waiting) rows.prepend(rowOf(event));
  waiting = [];
  while (rows.rows.length > MOST_ROWS) rows.lastElementChild.remove();
}

function tell() {
  // Screen readers announce the state when it changes, and leave the figures to be read.
  const text = paused ? (standing === "Live" ? "Paused" : `Paused. ${standing}`) : standing;
  if (state.textContent !== text) state.textContent = text;
  const parts = [];
  if (paused) parts.push(`${waiting.length} waiting`);
  if (arrived) parts.push(`last arrived ${arrived.toISOString().slice(11, 19)}`);
  if (leftOut) parts.push(`${leftOut} not shown, they came too fast`);
  figures.textContent = parts.map((part) => `· ${part}`).join(" ");
}

function become(next) {
  standing = next;
  tell();
}

function take(news) {
  leftOut += news.left_out + news.unread;
  if (news.events.length) arrived = new Date();
  waiting.push(...news.events);
  if (waiting.length > MOST_ROWS) leftOut += waiting.splice(0, waiting.length - MOST_ROWS).length;
  if (!paused) show();
  tell();
}

// Server-Sent Events (HTML, section 9.2) as this service writes them: every line ends with "\n".
async function* messages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      yield Object.fromEntries(part.split("\n").map((line) => line.split(/: (.*)/s, 2)));
    }
  }
}

// Until the stream ends. Returns whether to come back.
async function follow(signal, alive) {
  const headers = { Accept: "text/event-stream" };
  if (last !== null) headers["Last-Event-ID"] = last;
  const answer = await fetch(tail.dataset.live, { headers, signal, cache: "no-store" });
  if (!answer.ok) {
    const said = answer.status === 401 ? null : (await answer.json()).message;
    become(said ? `Not live: ${said}` : "Your session has ended: sign in again");
    return answer.status >= 500;
  }
  become("Live");
  for await (const message of messages(answer.body)) {
    alive();
    if (message.event === "ended") {
      become("Your session has ended: sign in again");
      return false;
    }
    if (message.data) take(JSON.parse(message.data));
    if (message.id) last = message.id;
  }
  become("Connection lost, trying again");
  return true;
}

async function run() {
  const own = (connection = new AbortController());
  let pause = RETRY;
  for (let again = true; again && connection === own; ) {
    const attempt = new AbortController();
    const hangUp = () => attempt.abort();
    own.signal.addEventListener("abort", hangUp);
    let silence = setTimeout(hangUp, SILENCE);
    try {
      again = await follow(attempt.signal, () => {
        clearTimeout(silence);
        silence = setTimeout(hangUp, SILENCE);
        pause = RETRY;
      });
    } catch {
      if (connection === own) become("Connection lost, trying again");
    }
    clearTimeout(silence);
    own.signal.removeEventListener("abort", hangUp);
    if (again) await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(2 * pause, MOST_RETRY);
  }
}

function stop() {
  connection?.abort();
  connection = null;
}

function resume() {
  if (!connection && !document.hidden) run();
}

function toggle() {
  paused = !paused;
  button.setAttribute("aria-pressed", String(paused));
  button.firstChild.textContent = paused ? "Resume " : "Pause ";
  if (!paused) show();
  tell();
}

if (tail && rows) {
  tail.hidden = false;
  resume();
  button.addEventListener("click", toggle);
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select");
    const off = localStorage.getItem("sluice-shortcuts-off") === "1";
    if (event.key === "p" && !typing && !off && !event.ctrlKey && !event.metaKey) toggle();
  });
  // A page that is hidden or left closes its tail, since a browser has few connections for all of
  // its pages; one that is shown again goes on where it was.
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : resume()));
  addEventListener("pagehide", stop);
  addEventListener("pageshow", resume);
}
