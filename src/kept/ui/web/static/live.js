// Server-sent events say that something moved; the page then fetches itself and takes over the parts
// marked data-live. The server makes all markup, so there is one way to draw a thing.
const pulse = document.getElementById("pulse");
let busy = false;
let again = false;

const say = (words) => { if (pulse && pulse.textContent !== words) pulse.textContent = words; };
const parts = (root) => [...root.querySelectorAll("[data-live][id]")];
// What the server drew, for what somebody opened or chose in it since is no change of the run.
const drawn = new Map(parts(document).map((one) => [one.id, one.outerHTML]));

// Rows and details are known by what they are about, not by where they stand: new ones come above.
const about = (one, all) => {
  const place = one.closest("[id]")?.id ?? "";
  const link = one.matches("[data-row]") ? one.querySelector("[data-open]")?.getAttribute("href") : null;
  return link ?? `${place}#${all.filter((other) => other.closest("[id]")?.id === place).indexOf(one)}`;
};
const known = (root, what) => { const all = [...root.querySelectorAll(what)]; return all.map((one) => [about(one, all), one]); };

const swap = (old, fresh) => {
  const opened = new Map(known(old, "details").map(([key, one]) => [key, one.open]));
  const chosen = new Set([...old.querySelectorAll("input:checked")].map((one) => one.value));
  const focus = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const here = known(old, "[data-row]").find(([, row]) => row.classList.contains("here"))?.[0];
  const scrolled = known(old, ".wide, pre")
    .map(([key, one]) => [key, one.scrollLeft, one.scrollTop]).filter(([, left, top]) => left || top);
  const next = document.importNode(fresh, true);
  old.replaceWith(next);
  for (const [key, one] of known(next, "details")) if (opened.has(key)) one.open = opened.get(key);
  next.querySelectorAll("input[type=checkbox]").forEach((one) => { one.checked = chosen.has(one.value); });
  const boxes = new Map(known(next, ".wide, pre"));
  for (const [key, left, top] of scrolled) boxes.get(key)?.scrollTo(left, top);
  if (focus) next.querySelector(`[href="${CSS.escape(focus)}"]`)?.focus();
  if (here) known(next, "[data-row]").find(([key]) => key === here)?.[1].classList.add("here");
  next.classList.add("changed-now");
};

// A part that there was no reason for before stands behind the one that it follows.
const insert = (fresh) => {
  let before = fresh.previousElementSibling;
  while (before && !(before.id && document.getElementById(before.id))) before = before.previousElementSibling;
  const next = document.importNode(fresh, true);
  if (before) document.getElementById(before.id).after(next);
  else document.getElementById(fresh.parentElement?.id || "main")?.append(next);
};

const take = (page) => {
  for (const old of parts(document)) {
    const now = page.getElementById(old.id);
    if (!now) old.remove();
    else if (now.outerHTML !== drawn.get(old.id)) swap(old, now);
  }
  for (const now of parts(page)) {
    if (!document.getElementById(now.id)) insert(now);
    drawn.set(now.id, now.outerHTML);
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

// A browser has six connections to a server for all of its tabs: one that nobody sees holds none.
export const follow = (address) => {
  let source = null;
  let first = true;
  // between the making of a page and its first hello nobody listened; what had ended by then stays so
  const settled = () => document.querySelector("#runhead .state.finished, #runhead .state.failed") !== null;
  const listen = () => {
    source = new EventSource(address);
    source.addEventListener("hello", () => { say("live"); if (!first || !settled()) refresh(); first = false; });
    source.addEventListener("change", () => { say("live"); refresh(); });
    source.addEventListener("error", () => say("not connected: is `kept view` still running?"));
  };
  const look = () => {
    if (document.visibilityState === "hidden") { source?.close(); source = null; }
    else if (!source) listen();
  };
  document.addEventListener("visibilitychange", look);
  addEventListener("pagehide", () => { source?.close(); source = null; });
  addEventListener("pageshow", look);
  look();
};
