// The editor of a policy: line numbers, suggestions of keys and values from the schema, and the
// faults at their lines while one types. Without this script the same form works, and the server
// shows the faults. Tab always leaves the editor.

const area = document.getElementById("f-text");
const gutter = document.getElementById("gutter");
const list = document.getElementById("suggestions");
const state = document.getElementById("editor-state");
const faultList = document.getElementById("editor-faults");
const clone = (id) => document.getElementById(id).content.firstElementChild.cloneNode(true);
const schema = JSON.parse(area.dataset.schema);

const PAUSE = 400; // milliseconds without a key until the text is checked
let faults = [];
let options = [];
let active = -1;
let timer = 0;
let asked = null;

// Lines

function drawLines() {
  const count = area.value.split("\n").length;
  while (gutter.childElementCount > count) gutter.lastElementChild.remove();
  while (gutter.childElementCount < count) {
    const number = clone("line-number");
    number.textContent = String(gutter.childElementCount + 1);
    gutter.append(number);
  }
  const bad = new Set(faults.map((fault) => fault.line));
  [...gutter.children].forEach((each, index) => each.classList.toggle("bad", bad.has(index + 1)));
  gutter.style.height = `${area.clientHeight}px`;
  gutter.scrollTop = area.scrollTop;
}

function goTo(line) {
  const start = area.value.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  const end = area.value.indexOf("\n", start);
  area.focus();
  area.setSelectionRange(start, end < 0 ? area.value.length : end);
  area.scrollTop = (line - 5) * lineHeight();
}

// Faults

function showFaults() {
  faultList.replaceChildren(
    ...faults.map((fault) => {
      const item = clone("fault");
      const [button, text] = item.children;
      button.textContent = fault.line ? `Line ${fault.line}` : "Text";
      button.addEventListener("click", () => goTo(fault.line || 1));
      text.textContent = fault.key ? `${fault.key}: ${fault.message}` : fault.message;
      return item;
    }),
  );
  faultList.hidden = faults.length === 0;
  if (faults.length) area.setAttribute("aria-invalid", "true");
  else area.removeAttribute("aria-invalid");
  const count = faults.length === 1 ? "1 fault" : `${faults.length} faults`;
  tell(faults.length ? `${count}, the first at line ${faults[0].line || 1}` : "No fault");
  drawLines();
}

async function check() {
  asked?.abort();
  const mine = (asked = new AbortController());
  const form = area.form;
  const body = new URLSearchParams({ csrf: form.elements.csrf.value, text: area.value, as: "faults" });
  try {
    const answer = await fetch(form.action, {
      method: "POST", body, headers: { Accept: "application/json" }, signal: mine.signal,
    });
    if (!answer.ok) throw new Error((await answer.json()).message);
    faults = (await answer.json()).faults;
    showFaults();
  } catch (error) {
    if (mine.signal.aborted) return;
    tell(`The text could not be checked: ${error.message}`);
  }
}

function checkSoon() {
  clearTimeout(timer);
  timer = setTimeout(check, PAUSE);
}

function tell(text) {
  if (state.textContent !== text) state.textContent = text;
}

// Suggestions

// What may stand where the caret is: its kind, and how many characters of it are typed already.
function wanted() {
  const before = area.value.slice(area.value.lastIndexOf("\n", area.selectionStart - 1) + 1, area.selectionStart);
  const value = /^\s*(?:- )?([a-z_]+):\s+([a-z]*)$/.exec(before);
  if (value && schema[value[1]]) {
    const values = schema[value[1]].values.filter((each) => each !== null);
    return found(value[2], values.map((text) => ({ text, insert: text, about: "" })));
  }
  const key = /^( {0,4}|\s*- )([a-z_]*)$/.exec(before);
  if (!key) return null;
  const used = new Set([...area.value.matchAll(/^[ -]*([a-z_]+):/gm)].map((match) => match[1]));
  const keys = Object.entries(schema).filter(([name]) => !used.has(name));
  return found(key[2], keys.map(([name, { about, required, list: many, values }]) => ({
    text: name,
    insert: many ? `${name}: []` : `${name}: `,
    back: many ? 1 : 0,
    about: required ? `Required. ${about}` : about,
    more: values.length > 0,
  })));
}

function found(typed, all) {
  const fitting = all.filter(({ text }) => text.startsWith(typed) && text !== typed);
  return fitting.length ? { typed, options: fitting } : null;
}

function suggest(always) {
  const here = area.selectionStart === area.selectionEnd ? wanted() : null;
  if (!here || (!always && !here.typed)) {
    close();
    if (always) tell("Nothing to suggest here");
    return;
  }
  options = here.options.map((option) => ({ ...option, typed: here.typed }));
  list.replaceChildren(
    ...options.map((option, index) => {
      const item = clone("suggestion");
      item.id = `suggestion-${index}`;
      item.firstElementChild.textContent = option.text;
      item.lastElementChild.textContent = option.about;
      item.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        take(index);
      });
      return item;
    }),
  );
  list.hidden = false;
  place();
  choose(always ? 0 : -1);
  const count = options.length === 1 ? "1 suggestion" : `${options.length} suggestions`;
  tell(`${count}: arrows and Enter take one`);
}

function choose(index) {
  active = index;
  [...list.children].forEach((each, number) => each.setAttribute("aria-selected", String(number === index)));
  if (index < 0) {
    area.removeAttribute("aria-activedescendant");
    return;
  }
  area.setAttribute("aria-activedescendant", `suggestion-${index}`);
  list.children[index].scrollIntoView({ block: "nearest" });
}

function take(index) {
  const { typed, insert, back = 0, more = false } = options[index];
  close();
  area.setSelectionRange(area.selectionStart - typed.length, area.selectionStart);
  write(insert);
  area.setSelectionRange(area.selectionStart - back, area.selectionStart - back);
  if (more) suggest(true);
}

// So that the browser can undo it, which it can't with `setRangeText`.
function write(text) {
  area.focus();
  if (!document.execCommand("insertText", false, text)) {
    area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
    area.dispatchEvent(new Event("input"));
  }
}

function close() {
  list.hidden = true;
  options = [];
  choose(-1);
}

function lineHeight() {
  return parseFloat(getComputedStyle(area).lineHeight);
}

// Below the caret's line; columns are as wide as one character of the type, which has one width.
function place() {
  const style = getComputedStyle(area);
  const brush = document.createElement("canvas").getContext("2d");
  brush.font = `${style.fontSize} ${style.fontFamily}`;
  const lines = area.value.slice(0, area.selectionStart).split("\n");
  const left = area.offsetLeft + lines.at(-1).length * brush.measureText("m").width - area.scrollLeft;
  const most = area.offsetLeft + area.offsetWidth - list.offsetWidth;
  list.style.left = `${Math.max(0, Math.min(left, most))}px`;
  list.style.top = `${lines.length * lineHeight() - area.scrollTop + parseFloat(style.paddingTop) + 4}px`;
}

function onKey(event) {
  if (event.key === " " && event.ctrlKey) {
    event.preventDefault();
    suggest(true);
  } else if (list.hidden) {
    if (event.key === "Enter" && !event.isComposing && !event.ctrlKey && !event.metaKey) indent(event);
  } else if (event.key === "Escape") {
    event.preventDefault();
    close();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    const step = event.key === "ArrowDown" ? 1 : -1;
    choose((Math.max(active, step < 0 ? 0 : -1) + step + options.length) % options.length);
  } else if (event.key === "Enter" && active >= 0) {
    event.preventDefault();
    take(active);
  } else if (event.key === "Enter" || event.key === "Tab") {
    close();
  }
}

// A new line begins where the last one did, and goes on with a list.
function indent(event) {
  const start = area.value.lastIndexOf("\n", area.selectionStart - 1) + 1;
  const line = area.value.slice(start, area.selectionStart);
  const [, space, item] = /^( *)(- )?/.exec(line);
  if (!space && !item) return;
  event.preventDefault();
  write(`\n${space}${item ?? ""}`);
}

area.setAttribute("aria-autocomplete", "list");
document.getElementById("editor-keys").hidden = false;
gutter.hidden = false;
area.addEventListener("input", () => {
  drawLines();
  suggest(false);
  checkSoon();
});
area.addEventListener("keydown", onKey);
area.addEventListener("scroll", () => {
  gutter.scrollTop = area.scrollTop;
  if (!list.hidden) place();
});
area.addEventListener("blur", close);
area.addEventListener("click", close);
new ResizeObserver(drawLines).observe(area);
drawLines();
