"use strict";
// Reveals what needs a script: the search, the key field and the forms under the operations.
// The key is read from its field when a form is sent. It is never stored: no cookie, no storage,
// no URL, no form value that a browser restores.
(() => {
  const byId = (id) => document.getElementById(id);
  const key = byId("key");
  const search = byId("search");
  const sections = [...document.querySelectorAll("section")];
  const texts = new Map(sections.map((each) => [each.id, each.textContent.toLowerCase()]));

  for (const each of document.querySelectorAll("[hidden]:not(output)")) each.hidden = false;
  key.value = "";
  // A page kept for the Back button would keep its fields, too.
  addEventListener("pagehide", () => { key.value = ""; });

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const section of sections) {
      const text = texts.get(section.id);
      const matches = words.every((word) => text.includes(word));
      section.hidden = !matches;
      found += matches;
    }
    for (const group of document.querySelectorAll(".group")) {
      let shown = 0;
      for (const item of group.querySelectorAll("li")) {
        item.hidden = byId(item.firstChild.hash.slice(1)).hidden;
        shown += !item.hidden;
      }
      group.hidden = !shown;
    }
    byId("found").textContent = words.length ? `${found} of ${sections.length} operations` : "";
  }

  // What a form asks for, as `fetch` takes it.
  function request(form) {
    const headers = {};
    const query = new URLSearchParams();
    let path = form.dataset.path;
    let body;
    for (const field of form.querySelectorAll("[data-in]")) {
      const { in: place, name } = field.dataset;
      if (place === "body") {
        headers["Content-Type"] = "application/json";
        body = field.value;
      } else if (place === "path") {
        path = path.replace(`{${name}}`, encodeURIComponent(field.value));
      } else if (field.value !== "") {
        if (place === "query") query.set(name, field.value);
        else headers[name] = field.value;
      }
    }
    if (key.value && path.startsWith("/v1/")) headers["X-API-Key"] = key.value.trim();
    const target = `.${path}${query.size ? `?${query}` : ""}`;
    const options = { method: form.dataset.method, headers, body, redirect: "manual" };
    return [target, { ...options, credentials: "omit", cache: "no-store", referrerPolicy: "no-referrer" }];
  }

  function readable(text) {
    try {
      return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      return text;  // Metrics, or this page: shown as it came.
    }
  }

  async function send(form) {
    const output = form.querySelector("output");
    const button = form.querySelector("button");
    output.hidden = false;
    output.textContent = "…";
    button.disabled = true;
    const started = performance.now();
    try {
      const answer = await fetch(...request(form));
      const text = await answer.text();
      const took = Math.round(performance.now() - started);
      const shown = ["X-Request-ID", "X-Sluice-Revision", "Link", "Retry-After"]
        .filter((name) => answer.headers.has(name))
        .map((name) => `${name}: ${answer.headers.get(name)}`);
      const status = answer.type === "opaqueredirect" ? "redirect" : `${answer.status} ${answer.statusText}`;
      output.textContent = [`${status}, ${took} ms`, ...shown, "", readable(text)].join("\n");
    } catch (error) {
      output.textContent = `No answer: ${error.message}. Is the service running?`;
    } finally {
      button.disabled = false;
    }
  }

  search.addEventListener("input", filter);
  document.addEventListener("submit", (event) => {
    event.preventDefault();
    send(event.target);
  });
})();
