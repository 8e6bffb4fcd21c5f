// Follows the service's verification of the log while it runs, and then loads the page again.
const PAUSE = 1000;
const LEAVING = 5000;
let leaving = false;

// A reload would take back the way to another page that the reader has just chosen.
addEventListener("beforeunload", () => {
  leaving = true;
  setTimeout(() => (leaving = false), LEAVING); // a download leaves the page where it is
});

const byId = (id) => document.getElementById(id);
const number = (value) => Number(value).toLocaleString("en");

async function follow(bar) {
  try {
    const answer = await fetch(bar.dataset.progress, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const found = await answer.json();
    if (!found.running && !leaving) return location.reload();
    bar.max = found.total - found.first;
    bar.value = found.reached - found.first;
    const at = `at entry ${number(found.reached)} of ${number(found.total)}`;
    byId("progress-text").textContent = found.queued ? "waits to begin" : at;
  } catch (error) {
    byId("progress-text").textContent = `not known: the service does not answer (${error.message})`;
  }
  setTimeout(follow, PAUSE, bar);
}

if (byId("progress")) follow(byId("progress"));
