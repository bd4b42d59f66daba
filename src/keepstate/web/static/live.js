// Changes as they happen: the server says that a page shows something else by now, and its part is asked for anew.
"use strict";
(() => {
  const AGAIN = 1000;
  const AWAY = 2500; // a connection that is made anew at once was never missed
  const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";
  const live = () => document.getElementById("live");
  if (!live()?.dataset.events) return;

  let source = null;
  let mark = live().dataset.mark;
  let timer = null;
  let away = null;

  const say = (on) => {
    clearTimeout(away);
    away = null;
    document.body.dataset.live = on ? "on" : "off";
  };

  const open = () => {
    clearTimeout(timer);
    source?.close();
    const address = live().dataset.events;
    source = new EventSource(`${address}${address.includes("?") ? "&" : "?"}mark=${mark}`);
    source.onopen = () => say(true);
    source.onmessage = (event) => {
      mark = event.data;
      live()?.dispatchEvent(new Event("keepstate:changed"));
    };
    source.onerror = () => {
      away ??= setTimeout(say, AWAY, false);
      // the browser tries again by itself, unless it was told that there is nothing
      if (source.readyState === EventSource.CLOSED) timer = setTimeout(open, AGAIN);
    };
  };

  // a page that nobody sees holds no connection: a browser has few of them for one server
  const onlyWhenSeen = () => {
    if (document.hidden) {
      clearTimeout(timer);
      clearTimeout(away);
      away = null;
      source?.close();
      source = null;
    } else if (source === null) open();
  };
  document.addEventListener("visibilitychange", onlyWhenSeen);
  addEventListener("pagehide", () => source?.close());
  addEventListener("pageshow", (event) => event.persisted && open());
  onlyWhenSeen();

  // who stands on a link that is drawn anew goes on standing there; what has an id, htmx finds again by itself
  let place = -1;
  let named = false;
  let unfolded = [];
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target.id !== "live") return;
    named = Boolean(document.activeElement.id);
    place = [...live().querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
    unfolded = [...live().querySelectorAll("details")].map((details) => details.open);
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target.id !== "live") return;
    live().querySelectorAll("details").forEach((details, index) => {
      details.open = unfolded[index] ?? false;
    });
    if (place < 0 || document.activeElement !== document.body) return;
    const next = named ? document.getElementById("add") : live().querySelectorAll(FOCUSABLE)[place];
    (next ?? document.getElementById("main")).focus();
  });
})();
