// Opens the decision page's script in Node, with elements that only keep what they are told: a visit
// as JSON on standard input, and on standard output what the page said before the reader confirmed
// it, after that, and when it was opened again.
import { readFileSync } from "node:fs";

const [folder] = process.argv.slice(2);
const { tenant, event, seq, known, answers } = JSON.parse(readFileSync(0, "utf8"));

function element(given = {}) {
  const cloneNode = () => element();
  const content = { firstElementChild: { cloneNode } };
  return { dataset: {}, content, setAttribute() {}, append() {}, replaceChildren() {}, ...given };
}

const kept = new Map([[`sluice-log ${tenant}`, JSON.stringify(known)]]);
const page = new Map([["proof", element({ dataset: { tenant, proof: "proof", growth: "growth" } })]]);

function getElementById(id) {
  if (!page.has(id)) page.set(id, element());
  return page.get(id);
}

globalThis.localStorage = {
  getItem: (name) => kept.get(name) ?? null,
  setItem: (name, value) => kept.set(name, value),
};
globalThis.document = {
  getElementById,
  querySelector: () => element({ textContent: seq }),
  querySelectorAll: () => [],
};
globalThis.location = { search: `?id=${event}` };
globalThis.fetch = async (address) => {
  const { status, body } = answers[address.split("?")[0]];
  return { ok: status === 200, status, json: async () => body };
};

async function said(act) {
  const verdict = getElementById("verdict");
  verdict.className = "";
  await act();
  while (["", "notice info"].includes(verdict.className)) await new Promise(setImmediate);
  const [title, text] = ["title", "text"].map((part) => getElementById(`verdict-${part}`).textContent);
  return { title, text, asks: !getElementById("confirm").hidden };
}

const told = [
  await said(() => import(`${folder}/proof.js`)),
  await said(() => getElementById("confirm-button").onclick()),
  await said(() => import(`${folder}/proof.js?again`)),
];
process.stdout.write(JSON.stringify(told));
