"use strict";
// What is chosen on a page stands in the fragment of its address, as name=value: a link restores it, and so does "back".
// A fragment without "=" is a place on the page, and changes nothing of that.

const address = (() => {
  let chosen = new URLSearchParams();
  const listeners = [];
  const read = () => {
    const text = location.hash.slice(1);
    if (text === "" || text.includes("=")) chosen = new URLSearchParams(text);
  };
  const apply = () => listeners.forEach((listener) => listener());
  window.addEventListener("hashchange", () => {
    read();
    apply();
  });
  read();
  return {
    get: (name) => chosen.get(name),
    all: (name) => chosen.getAll(name),
    // Nothing (null, "" or no value at all) is what stands there unless something is chosen, and not told.
    set: (changes, remember = true) => {
      for (const [name, value] of Object.entries(changes)) {
        chosen.delete(name);
        for (const each of [value].flat()) if (each) chosen.append(name, each);
      }
      const text = chosen.toString();
      history[remember ? "pushState" : "replaceState"](null, "", text ? `#${text}` : location.href.replace(/#.*$/, ""));
      apply();
    },
    // Calls the listener now and whenever something else is chosen.
    follow: (listener) => {
      listeners.push(listener);
      listener();
    },
  };
})();
