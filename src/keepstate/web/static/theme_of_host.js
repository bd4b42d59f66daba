// Light or dark, and on the same ground, as the pages around ours are. Runs before the page is drawn, so nothing flashes.
"use strict";
(() => {
  const FADED = 100; // milliseconds after a switch until the ground has its colour
  const root = document.documentElement;
  let host;
  try {
    host = parent === window ? null : parent.document.documentElement;
  } catch {
    host = null; // a frame of another origin: the system's choice stands
  }
  if (!host) return;
  const apply = () => {
    root.dataset.theme = host.classList.contains("dark") ? "dark" : "light";
    const ground = getComputedStyle(host).backgroundColor;
    // none at all is written as a transparent one
    if (ground !== "rgba(0, 0, 0, 0)") root.style.setProperty("--paper", ground);
  };
  apply();
  new MutationObserver(() => {
    apply();
    setTimeout(apply, FADED);
  }).observe(host, { attributes: true, attributeFilter: ["class"] });
})();
