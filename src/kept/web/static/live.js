// Server-sent events say that something moved; the page then fetches itself and takes over the parts
// marked data-live. The server makes all markup, so there is one way to draw a thing.
const pulse = document.getElementById("pulse");
let busy = false;
let again = false;

const say = (words) => { if (pulse && pulse.textContent !== words) pulse.textContent = words; };

const take = (fresh) => {
  for (const old of document.querySelectorAll("[data-live][id]")) {
    const now = fresh.getElementById(old.id);
    if (!now || now.outerHTML === old.outerHTML) continue;
    const opened = [...old.querySelectorAll("details")].map((one) => one.open);
    const chosen = new Set([...old.querySelectorAll("input:checked")].map((one) => one.value));
    const focus = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const here = [...old.querySelectorAll("[data-row]")].findIndex((row) => row.classList.contains("here"));
    const next = document.importNode(now, true);
    old.replaceWith(next);
    next.querySelectorAll("details").forEach((one, n) => { if (n in opened) one.open = opened[n]; });
    next.querySelectorAll("input[type=checkbox]").forEach((one) => { one.checked = chosen.has(one.value); });
    if (focus) next.querySelector(`[href="${CSS.escape(focus)}"]`)?.focus();
    if (here >= 0) next.querySelectorAll("[data-row]")[here]?.classList.add("here");
    next.classList.add("changed-now");
  }
};

export const refresh = async () => {
  if (busy) { again = true; return; }
  busy = true;
  try {
    const reply = await fetch(location.pathname + location.search, { headers: { accept: "text/html" } });
    if (reply.ok) take(new DOMParser().parseFromString(await reply.text(), "text/html"));
  } finally {
    busy = false;
    if (again) { again = false; setTimeout(refresh, 200); }
  }
};

export const follow = (address) => {
  const source = new EventSource(address);
  let first = true;
  // what went on when the page was made may have ended before anybody listened
  const going = () => document.querySelector(".state.running") !== null;
  source.addEventListener("hello", () => { say("live"); if (!first || going()) refresh(); first = false; });
  source.addEventListener("change", () => { say("live"); refresh(); });
  source.addEventListener("error", () => say("not connected: is `kept view` still running?"));
};
