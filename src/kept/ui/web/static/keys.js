// j and k move, Enter opens, / searches, Esc goes up.
const rows = () => [...document.querySelectorAll("[data-row]")].filter((row) => row.getClientRects().length);
const at = (all) => all.findIndex((row) => row.classList.contains("here"));

const move = (by) => {
  const all = rows();
  if (!all.length) return;
  const now = at(all);
  const next = Math.min(all.length - 1, Math.max(0, now + by));
  if (now >= 0) all[now].classList.remove("here");
  all[next].classList.add("here");
  all[next].scrollIntoView({ block: "nearest" });
};

const open = () => {
  const all = rows();
  const row = all[at(all)];
  row?.querySelector("[data-open]")?.click();
};

const up = () => {
  const link = document.querySelector("[data-up]") ?? document.querySelector("header nav a:last-of-type");
  if (link) link.click();
};

const typing = (target) => target.matches?.("input, select, textarea");

export const listen = () => {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const step = { j: 1, k: -1 }[event.key];
    if (step) move(step);
    else if (event.key === "Enter" && event.target === document.body) open();
    else if (event.key === "/") document.querySelector("[data-search]")?.focus();
    else if (event.key === "Escape") up();
    else return;
    if (event.key === "/") event.preventDefault();
  });
};
