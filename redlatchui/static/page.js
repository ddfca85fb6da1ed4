// Shows new readings as the server sends them. Without this script, the page shows the reading of its
// load.
"use strict";
(() => {
  const address = document.getElementById("live").dataset.events;
  const connection = document.getElementById("connection");
  const pause = document.getElementById("pause");
  const retryAfter = 10000;
  let source = null;
  let retry = 0;
  let paused = false;

  function say(text, state) {
    if (connection.textContent !== text) connection.textContent = text;
    connection.dataset.state = state;
  }

  function start() {
    stop();
    source = new EventSource(address);
    source.addEventListener("page", (event) => {
      say("Live", "live");
      const parsed = document.createElement("template");
      parsed.innerHTML = event.data; // the server has escaped all foreign text, and CSP runs no script in it
      for (const part of parsed.content.querySelectorAll("[data-for]")) {
        morph(document.getElementById(part.dataset.for), part);
      }
    });
    source.onerror = () => {
      say("Not live: connecting again", "lost");
      if (source.readyState === EventSource.CLOSED) retry = setTimeout(start, retryAfter); // it was refused
    };
  }

  function stop() {
    clearTimeout(retry);
    if (source) source.close();
    source = null;
  }

  // morph makes the children of an element those of another one. It keeps what is equal, so that the
  // focus and the selection stay where they are.
  function morph(element, wanted) {
    const byKey = new Map();
    for (const child of element.children) if (child.dataset.key) byKey.set(child.dataset.key, child);
    let at = element.firstChild;
    for (const next of Array.from(wanted.childNodes)) {
      const key = next.nodeType === Node.ELEMENT_NODE ? next.dataset.key : undefined;
      let same = key ? byKey.get(key) : at;
      if (same && (same.nodeName !== next.nodeName || (!key && same.dataset && same.dataset.key))) same = null;
      if (!same) {
        element.insertBefore(next, at);
        continue;
      }
      if (key) byKey.delete(key);
      if (same === at) at = at.nextSibling;
      else element.insertBefore(same, at);
      patch(same, next);
    }
    while (at) {
      const rest = at.nextSibling;
      at.remove();
      at = rest;
    }
  }

  function patch(old, next) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
      return;
    }
    for (const { name } of Array.from(old.attributes)) if (!next.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    morph(old, next);
  }

  // A tab that nobody sees costs Redis nothing.
  function follow() {
    if (paused) {
      stop();
      say("Paused", "paused");
    } else if (document.hidden) {
      stop();
    } else {
      start();
    }
  }

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    follow();
  });
  document.addEventListener("visibilitychange", follow);
  addEventListener("pagehide", stop); // a page that the browser keeps for "back" reads nothing
  addEventListener("pageshow", (event) => {
    if (event.persisted) follow();
  });
  follow();
})();
