// The one dialog: it opens with what is loaded into it, closes when a change is made, and gives the focus back.
"use strict";
(() => {
  const dialog = document.getElementById("dialog");
  const content = document.getElementById("dialog-content");
  const toasts = document.getElementById("toasts");
  let opener = null; // the id of what opened it: the element itself may have been drawn anew meanwhile

  let changed = false; // a change was made, and what it changed is not drawn yet

  const toast = (text, kind) => {
    const note = document.createElement("p");
    note.className = `toast ${kind}`;
    note.textContent = text;
    toasts.append(note);
    setTimeout(() => note.remove(), 6000);
  };

  const giveFocusBack = () => {
    if (opener === null) return;
    const target =
      document.getElementById(opener) ?? document.getElementById("add") ?? document.getElementById("main");
    target.focus();
  };

  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.target?.id === "dialog-content" && !dialog.open) opener = event.detail.elt.id || null;
  });

  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target.id !== "dialog-content") return;
    if (!dialog.open) dialog.showModal();
    const checker = document.getElementById("checker");
    checker?.addEventListener("htmx:beforeOnLoad", (answer) => {
      // what comes after the dialog is gone has no place any more
      if (!checker.isConnected) answer.preventDefault();
    });
    const wrong = content.querySelector("[aria-invalid], [role=alert] button");
    (wrong ?? content.querySelector("[autofocus]"))?.focus();
  });

  dialog.addEventListener("click", (event) => {
    if (event.target.closest("[data-close]")) dialog.close();
  });
  // what somebody typed is not lost to one key
  let warned = false;
  dialog.addEventListener("cancel", (event) => {
    const typed = [...content.querySelectorAll("#key, #value")].some((field) => field.value !== field.defaultValue);
    if (!typed || warned) return;
    event.preventDefault();
    warned = true;
    toast("Press Esc again to discard your changes.", "fine");
  });
  dialog.addEventListener("close", () => {
    warned = false;
    content.replaceChildren();
    giveFocusBack();
  });

  document.addEventListener("keepstate:done", (event) => {
    toast(event.detail.message, "fine");
    changed = true;
    document.getElementById("live")?.dispatchEvent(new Event("keepstate:changed"));
    if (dialog.open) dialog.close();
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    // the row that had the focus was drawn anew, or is gone
    if (event.detail.target.id !== "live" || !changed) return;
    changed = false;
    if (document.activeElement === document.body) giveFocusBack();
  });

  document.addEventListener("htmx:responseError", (event) => {
    // what is too large to be checked at each key is judged when it is saved
    if (event.detail.elt.id === "checker" && event.detail.xhr.status === 413) return;
    toast(event.detail.xhr.responseText || "An error occurred on the server.", "bad");
  });
  document.addEventListener("htmx:sendError", (event) => {
    if (event.detail.elt.id !== "live") toast("The server can't be reached. Try again later.", "bad");
  });

  // what is typed is checked by the server, whose rules they are
  document.addEventListener("input", (event) => {
    if (!event.target.matches("[data-check]")) return;
    event.target.removeAttribute("aria-invalid");
    document.getElementById("checker")?.dispatchEvent(new Event("keepstate:check"));
  });
  document.addEventListener("htmx:oobAfterSwap", () => {
    for (const problem of content.querySelectorAll(".problem")) {
      const field = content.querySelector(`[aria-describedby~="${problem.id}"]:not(fieldset)`);
      if (problem.textContent.trim()) field?.setAttribute("aria-invalid", "true");
      else field?.removeAttribute("aria-invalid");
    }
  });
})();
