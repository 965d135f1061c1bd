"use strict";
// Keeps the sections of the page up to date: the server renders, this replaces what has changed.
// Without scripts, everything works as links and forms; only the updates are missing.
(() => {
  const live = document.getElementById("live");
  const MAX_WAIT_S = 30;
  let failures = 0;
  let lostAt = null;
  let timer = 0;

  const everyS = () => {
    const first = document.querySelector("[data-every]");
    return first ? Number(first.dataset.every) : 0;
  };

  const stateOf = (section) => ({
    open: [...section.querySelectorAll("details[open][id]")].map((each) => each.id),
    scrolled: [...section.querySelectorAll(".canvas, .lines, .scroll, aside, pre")].map(
      (each) => [each.scrollLeft, each.scrollTop]),
  });

  const restore = (section, state) => {
    for (const id of state.open) {
      const found = section.querySelector(`#${CSS.escape(id)}`);
      if (found) found.open = true;
    }
    section.querySelectorAll(".canvas, .lines, .scroll, aside, pre").forEach((each, place) => {
      const at = state.scrolled[place];
      if (at) [each.scrollLeft, each.scrollTop] = at;
    });
  };

  const linksTo = (root, href) => [...root.querySelectorAll("a")].filter(
    (each) => each.getAttribute("href") === href);

  // The element that has the focus, by what stays the same: its id, or where it leads.
  const focusIn = (section) => {
    const active = document.activeElement;
    if (!active || !section.contains(active)) return null;
    if (active.id) return (root) => root.querySelector(`#${CSS.escape(active.id)}`);
    const href = active.getAttribute("href");
    const place = href ? linksTo(section, href).indexOf(active) : -1;
    return place < 0 ? null : (root) => linksTo(root, href)[place];
  };

  const isEdited = (section) => {
    const active = document.activeElement;
    return section.contains(active) && active.matches("input, select, button, summary");
  };

  const sections = new Map();
  const remember = (root) => {
    for (const each of root.querySelectorAll("[data-live]")) sections.set(each.dataset.live, each.innerHTML);
  };

  const replace = (next) => {
    for (const section of document.querySelectorAll("[data-live]")) {
      const other = next.querySelector(`[data-live="${CSS.escape(section.dataset.live)}"]`);
      if (!other || sections.get(section.dataset.live) === other.innerHTML || isEdited(section)) continue;
      const state = stateOf(section);
      const focus = focusIn(section);
      const openActions = section.querySelector(".actions details[open]");
      if (openActions && !next.querySelector(`#${openActions.id}`)) state.open = [];
      sections.set(section.dataset.live, other.innerHTML);
      section.innerHTML = other.innerHTML;
      section.dataset.every = other.dataset.every || "";
      if (!other.dataset.every) delete section.dataset.every;
      restore(section, state);
      const found = focus && focus(section);
      if (found) found.focus({ preventScroll: true });
    }
    document.title = next.title;
  };

  const load = async (address) => {
    const stop = new AbortController();
    const late = setTimeout(() => stop.abort(), 10000);
    try {
      const answer = await fetch(address, { signal: stop.signal, credentials: "same-origin" });
      if (answer.redirected && new URL(answer.url).pathname === "/login") {
        window.location.reload();
        return;
      }
      if (!answer.ok) throw new Error(String(answer.status));
      replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } finally {
      clearTimeout(late);
    }
  };

  const clock = () => new Date().toLocaleTimeString();

  const look = async () => {
    if (document.visibilityState === "visible" && everyS()) {
      try {
        await load(window.location.href);
        failures = 0;
        lostAt = null;
        live.textContent = `updated ${clock()}`;
        live.classList.remove("lost");
      } catch {
        failures += 1;
        lostAt = lostAt || clock();
        live.textContent = `connection lost at ${lostAt}, what you see is of then`;
        live.classList.add("lost");
      }
    }
    plan();
  };

  const plan = () => {
    clearTimeout(timer);
    const waitS = Math.min(MAX_WAIT_S, (everyS() || 5) * 2 ** Math.min(failures, 4));
    timer = setTimeout(look, waitS * 1000);
  };

  // Links that only choose what is shown: no new page, so that nothing jumps.
  document.addEventListener("click", async (event) => {
    const link = event.target.closest && event.target.closest("a[data-soft]");
    if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const address = new URL(link.getAttribute("href"), window.location.href);
    event.preventDefault();
    try {
      await load(address.href);
      window.history.pushState({}, "", address.href);
      const panel = address.hash === "#step" && document.getElementById("step");
      if (panel) panel.scrollIntoView({ block: "nearest" });
    } catch {
      window.location.assign(address.href);
    }
  });
  window.addEventListener("popstate", () => { load(window.location.href).catch(() => window.location.reload()); });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    const close = document.querySelector("#step .close");
    if (close) close.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
  });
  document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") look(); });

  remember(document);
  if (everyS()) plan();
})();
