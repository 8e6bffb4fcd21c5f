// Offers to sign in by a one-time link, whose code the fragment holds so that no log and no `Referer`
// does. Never without a click: a link on another site must not change who a visitor is.

const code = new URLSearchParams(location.hash.slice(1)).get("code");
const form = document.getElementById("link");

if (code && form) {
  // Out of the address first: neither the history nor a bookmark keeps it.
  history.replaceState(null, "", location.pathname);
  form.elements.code.value = code;
  document.getElementById("by-key").hidden = true;
  form.hidden = false;
  form.querySelector("button").focus();
}
