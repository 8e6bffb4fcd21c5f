// Sends the code of a one-time link, which the fragment holds so that no log and no `Referer` does.

const code = new URLSearchParams(location.hash.slice(1)).get("code");
const form = document.getElementById("link");

if (code && form) {
  // Out of the address first: neither the history nor a bookmark keeps it.
  history.replaceState(null, "", location.pathname);
  form.elements.code.value = code;
  document.getElementById("by-key").hidden = true;
  form.hidden = false;
  // Who is signed in already is asked: a foreign link must not change who they are.
  if ("ask" in form.dataset) form.querySelector("button").focus();
  else form.requestSubmit();
}
