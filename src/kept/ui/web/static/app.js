// A page that follows its run, and that can be used without a mouse. Everything works without it.
import { follow } from "./live.js";
import { listen } from "./keys.js";

const stream = document.body.dataset.events;
if (stream) follow(stream);
listen();

// the list narrows as one types; without this module the button does it
const form = document.querySelector("form[data-auto]");
if (form) {
  let waiting = 0;
  const ask = async () => {
    const address = `/?${new URLSearchParams(new FormData(form))}`;
    history.replaceState(null, "", address);
    const { refresh } = await import("./live.js");
    refresh();
  };
  form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(ask, 150); });
  form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
}
