// Copies the secret that the page shows once. Browsers let pages copy over HTTPS and on localhost only.
const button = document.getElementById("copy");
const told = document.getElementById("copied");
if (navigator.clipboard) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(document.getElementById("secret").textContent);
      told.textContent = "Copied";
    } catch {
      told.textContent = "The browser refused: select it and copy it yourself";
    }
  });
}
