// Fetches the page again every two seconds and puts its <main> in the place of the old one, while
// somebody looks and is not in the middle of something. It says Live only while it does: else what keeps it
// from it, until that has ended.
"use strict";
(() => {
  const every = 2000;
  const button = document.getElementById("live");
  const trouble = document.getElementById("trouble");
  const page = () => document.getElementById("main");
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  if (!page().matches("[data-live]")) return;
  let live = true;
  let asking = false;
  const wrongs = { 401: "signedOut", 403: "gone", 404: "gone" };
  const judge = (code) => (code < 300 ? "" : wrongs[code] || "silent");
  let wrong = judge(Number(page().dataset.code)); // what the last answer said; "": all is well
  let answered = performance.now(); // when it came
  button.hidden = false;
  const shown = () => page().querySelector(".updated time")?.textContent || "before";
  const sentences = {
    waits: () => "Updates wait: something on this page has the focus, is open or is selected.",
    silent: () => `This node does not answer. What is shown is as it was at ${shown()}.`,
    signedOut: () => `You are signed out. What is shown is as it was at ${shown()}.`,
    gone: () => `This is not there any more, or not yours to see. What is shown is as it was at ${shown()}.`,
  };
  // What somebody fills in, has opened or selected would be lost.
  const busy = () => {
    const main = page();
    const at = document.activeElement;
    return (at && at !== main && main.contains(at) && !at.matches("div.box")) ||
      main.querySelector("details[open],.pick :checked") || String(getSelection()) !== "";
  };
  const say = () => {
    const late = performance.now() - answered > 3 * every;
    const state = !live ? "" : wrong || (busy() ? "waits" : late ? "late" : "");
    const text = sentences[state]?.() || "";
    button.textContent = !live ? "Paused" : { "": "Live", late: "Updating", waits: "Waiting", silent: "Not answering", signedOut: "Signed out", gone: "Gone" }[state];
    button.dataset.state = trouble.dataset.state = { "": "", late: "waits", waits: "waits" }[state] ?? "off";
    trouble.hidden = !text;
    if (trouble.dataset.text === text) return; // it is read out once
    trouble.dataset.text = text;
    trouble.replaceChildren(text);
    if (state === "signedOut") {
      const again = document.createElement("a");
      again.href = location.href;
      again.textContent = "Sign in again";
      trouble.append(" ", again);
    }
  };
  button.addEventListener("click", () => {
    live = !live;
    button.setAttribute("aria-pressed", String(live));
    say();
  });
  const swap = (text) => {
    const main = page();
    const next = new DOMParser().parseFromString(text, "text/html");
    const its = next.getElementById("main");
    if (!its || busy() || !live) return;
    const scrolled = [...main.querySelectorAll(".box")].map((b) => b.scrollLeft);
    main.replaceChildren(...its.childNodes);
    main.querySelectorAll(".box").forEach((b, i) => { b.scrollLeft = scrolled[i] || 0; });
    document.title = next.title;
    if (its.matches("[data-live]")) return;
    clearInterval(timer); // it is to be read, or filled in
    button.hidden = true;
  };
  const refresh = async () => {
    if (asking || !live || document.hidden || (busy() && !wrong)) return say();
    asking = true;
    try {
      const address = new URL(location.href);
      address.searchParams.delete("said");
      const answer = await fetch(address, { credentials: "same-origin", headers: { "Tenure-Live": "1" }, signal: AbortSignal.timeout(10000) });
      const text = await answer.text();
      wrong = judge(answer.status);
      answered = performance.now();
      if (!wrong) swap(text);
    } catch {
      wrong = "silent";
    } finally {
      asking = false;
    }
    say();
  };
  const timer = setInterval(refresh, every);
  document.addEventListener("focusin", say);
  document.addEventListener("focusout", () => setTimeout(say));
  document.addEventListener("visibilitychange", refresh);
  say();
})();
