// The keyboard's shortcuts: `g` and an area's letter leads there, `/` to the page's search, `?` shows
// them. They can be switched off (WCAG 2.2, 2.1.4), which this browser then remembers.

const OFF = "sluice-shortcuts-off";
const areas = new Map(
  [...document.querySelectorAll("nav [data-key]")].map((link) => [link.dataset.key, link]),
);
let pending = false;

const isOff = () => localStorage.getItem(OFF) === "1";

function typing(target) {
  return target instanceof Element && target.closest("input, textarea, select, [contenteditable]");
}

document.addEventListener("keydown", (event) => {
  if (isOff() || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  if (pending) {
    pending = false;
    const link = areas.get(event.key);
    if (link) {
      event.preventDefault();
      link.click();
    }
    return;
  }
  if (event.key === "g") {
    pending = true;
    setTimeout(() => (pending = false), 1500);
  } else if (event.key === "/") {
    const search = document.querySelector("[data-search], main input[type=search], main input[type=text]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  } else if (event.key === "?") {
    event.preventDefault();
    help();
  }
});

function made(tag, text = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}

function help() {
  const dialog = made("dialog");
  dialog.setAttribute("aria-labelledby", "shortcuts-title");
  const title = made("h2", "Keyboard shortcuts");
  title.id = "shortcuts-title";
  const list = made("dl");
  const rows = [["/", "Search on this page"], ["?", "This list"]];
  for (const [key, link] of areas) rows.push([`g ${key}`, link.textContent]);
  for (const [keys, what] of rows) {
    const term = made("dt");
    term.append(made("kbd", keys));
    list.append(term, made("dd", what));
  }
  const label = made("label", " Shortcuts are on");
  const box = made("input");
  box.type = "checkbox";
  box.checked = !isOff();
  box.addEventListener("change", () => localStorage.setItem(OFF, box.checked ? "0" : "1"));
  label.prepend(box);
  const form = made("form");
  form.method = "dialog";
  form.append(made("button", "Close"));
  dialog.append(title, list, label, form);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

const button = document.getElementById("keys-help");
if (button) {
  button.hidden = false;
  button.addEventListener("click", help);
}
