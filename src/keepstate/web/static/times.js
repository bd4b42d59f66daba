// Times in the browser's zone; the exact instant is what the title says. Without this script they are in UTC.
"use strict";
(() => {
  const two = (number) => String(number).padStart(2, "0");
  const local = (at) =>
    `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` +
    `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

  const show = (root) => {
    for (const time of root.querySelectorAll("time:not([data-local])")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      time.textContent = local(at);
      time.dataset.local = "";
    }
    for (const place of root.querySelectorAll("[data-zone]")) place.textContent = ` (${zone})`;
    for (const input of root.querySelectorAll("input[data-instant]")) {
      // a dialog that comes back from the server with what was typed
      const hidden = input.form.elements[input.dataset.instant];
      if (hidden.value && !input.value) input.value = local(new Date(hidden.value)).replace(" ", "T");
    }
  };

  // what is typed is the browser's time; what is sent is the instant
  document.addEventListener("input", (event) => {
    const name = event.target.dataset?.instant;
    if (!name) return;
    const at = new Date(event.target.value);
    event.target.form.elements[name].value = Number.isNaN(at.getTime()) ? "" : at.toISOString();
  });

  show(document);
  document.addEventListener("htmx:load", (event) => show(event.detail.elt.parentElement ?? document));
})();
