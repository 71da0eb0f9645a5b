// Fetches the page again every two seconds and puts its <main> in the place of the old one, while
// somebody looks and is not in the middle of something.
"use strict";
(() => {
  const every = 2000;
  const button = document.getElementById("live");
  if (!document.querySelector("main[data-live]")) return;
  let live = true;
  let asking = false;
  button.hidden = false;
  const say = (text) => { button.textContent = text; };
  button.addEventListener("click", () => {
    live = !live;
    button.setAttribute("aria-pressed", String(live));
    say(live ? "Live" : "Paused");
  });
  // What somebody fills in, has opened or selected would be lost.
  const busy = (main) => {
    const at = document.activeElement;
    return document.hidden || (at && at !== main && main.contains(at) && !at.matches("div.box")) ||
      main.querySelector("details[open]") || String(getSelection()) !== "";
  };
  const swap = (text) => {
    const main = document.getElementById("main");
    const next = new DOMParser().parseFromString(text, "text/html").getElementById("main");
    if (!next || busy(main) || !live) return;
    const scrolled = [...main.querySelectorAll(".box")].map((b) => b.scrollLeft);
    main.replaceChildren(...next.childNodes);
    main.querySelectorAll(".box").forEach((b, i) => { b.scrollLeft = scrolled[i] || 0; });
  };
  const refresh = async () => {
    if (asking || !live || busy(document.getElementById("main"))) return;
    asking = true;
    try {
      const address = new URL(location.href);
      address.searchParams.delete("said");
      const answer = await fetch(address, { credentials: "same-origin", signal: AbortSignal.timeout(10000) });
      if (!answer.ok) throw new Error(answer.statusText);
      swap(await answer.text());
      if (live) say("Live");
    } catch {
      if (live) say("Not answering");
    } finally {
      asking = false;
    }
  };
  setInterval(refresh, every);
})();
