// What this browser remembers of each tenant's log: its name, the first keys that it saw, the largest
// checkpoint that it has verified, and the decision that failed. Shows that where a page has a place
// for it; verifies nothing.

// By the tenant, and not by the log's name, which an emptied database gets anew: that would pass for
// a first visit.
const placeOf = (tenant) => `sluice-log ${tenant}`;

/**
 * `{log, origin, key, witnesses, size, root, at, failed}`, or null: `key` and `root` are base64,
 * `size` is decimal text, `at` is in milliseconds since 1970, and `failed` is `{event, text}` of the
 * last decision that could not be verified. Without a verified checkpoint, only `failed`.
 */
export const remembered = (tenant) => JSON.parse(localStorage.getItem(placeOf(tenant)) ?? "null");

/** `event` is the decision that was verified: if it failed before, that is over. */
export function remember(tenant, what, event) {
  const failed = remembered(tenant)?.failed;
  const kept = failed && failed.event !== event ? { failed } : {};
  const at = event ? { at: Date.now() } : {};
  localStorage.setItem(placeOf(tenant), JSON.stringify({ ...kept, ...what, ...at }));
  show();
}

/** Fills the element that the macro `verified_log` makes. */
function show() {
  for (const place of document.querySelectorAll("[data-verified-log]")) {
    const known = remembered(place.dataset.verifiedLog);
    if (!known) continue;
    const part = (name) => place.querySelector(`[data-part=${name}]`);
    if (known.failed) {
      part("failed-text").textContent = known.failed.text;
      part("failed-link").href = `/console/decision?id=${encodeURIComponent(known.failed.event)}`;
      part("failed").hidden = false;
    } else {
      part("failed").hidden = true;
    }
    let isBehind = false;
    let isOther = false;
    if (known.size) {
      const [size, signed] = [BigInt(known.size), BigInt(place.dataset.size || known.size)];
      isBehind = signed < size;
      const { log, root } = place.dataset;
      // An incarnation of the log has the log's name with `#` and a number.
      isOther = (log && log.split("#")[0] !== known.log) || (root && signed === size && root !== known.root);
      part("never").hidden = true;
      part("entry").textContent = (size - 1n).toLocaleString("en");
      part("time").textContent = `, ${new Date(known.at).toISOString().slice(0, 16).replace("T", " ")} UTC`;
      part("newer").textContent = `${(signed - size).toLocaleString("en")} newer`;
      part("newer").parentElement.hidden = signed <= size;
      part("behind").hidden = !isBehind;
      part("other").hidden = !isOther;
      part("some").hidden = false;
    }
    place.className = `notice ${known.failed || isBehind || isOther ? "bad" : "good"}`;
  }
}

show();
