// Follows a run that goes on: fills its bar, and loads the page again when it ends.
const bar = document.querySelector("progress[data-progress]");
const said = document.getElementById("progress-text");
const EVERY = 1000;
const LEAVING = 5000;
let leaving = false;

// A reload would take back the way to another page that the reader has just chosen.
addEventListener("beforeunload", () => {
  leaving = true;
  setTimeout(() => (leaving = false), LEAVING); // a download leaves the page where it is
});

async function look() {
  try {
    const answer = await fetch(bar.dataset.progress, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const { running, progress } = await answer.json();
    if (!running && !leaving) return location.reload();
    bar.value = progress;
    said.textContent = `${Math.floor(100 * progress)} %`;
  } catch (error) {
    said.textContent = `No answer (${error.message}). Trying again.`;
  }
  setTimeout(look, EVERY);
}

setTimeout(look, EVERY);
