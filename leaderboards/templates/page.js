"use strict";
// The page is complete without this: it turns stacked tables into tabs, sorts columns, and picks a line out of the curves.

for (const group of document.querySelectorAll(".measures")) {
  const tabs = [...group.querySelectorAll("[role=tab]")];
  const panels = tabs.map((tab) => document.getElementById(tab.getAttribute("aria-controls")));
  const select = (chosen) => {
    tabs.forEach((tab, index) => {
      tab.setAttribute("aria-selected", String(index === chosen));
      tab.tabIndex = index === chosen ? 0 : -1;
      panels[index].hidden = index !== chosen;
    });
  };
  tabs.forEach((tab, index) => {
    panels[index].setAttribute("role", "tabpanel");
    panels[index].setAttribute("aria-labelledby", tab.id);
    tab.addEventListener("click", () => select(index));
    tab.addEventListener("keydown", (event) => {
      const last = tabs.length - 1;
      const next = { ArrowRight: index === last ? 0 : index + 1, ArrowLeft: index ? index - 1 : last, Home: 0, End: last }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      select(next);
      tabs[next].focus();
    });
  });
  group.querySelector("[role=tablist]").hidden = false;
  group.classList.add("tabbed");
  select(0);
}

for (const table of document.querySelectorAll("table.heat")) {
  const headings = [...table.querySelectorAll("thead tr:last-child th")];
  const bodies = [...table.querySelectorAll("tbody.sortable")];
  const original = bodies.map((body) => [...body.rows]);
  // Blanks come last in either direction: they are no value at all.
  const compare = (column, sign) => (one, other) => {
    const [a, b] = [one, other].map((row) => row.cells[column].dataset.sort);
    if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
    return sign * (Number(a) - Number(b));
  };
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const was = heading.getAttribute("aria-sort");
      headings.forEach((each) => each.removeAttribute("aria-sort"));
      const next = column === 0 ? null : { null: "descending", descending: "ascending", ascending: null }[was];
      if (next) heading.setAttribute("aria-sort", next);
      bodies.forEach((body, index) => {
        const rows = [...original[index]];
        if (next) rows.sort(compare(column, next === "ascending" ? 1 : -1));
        body.append(...rows);
      });
    });
  });
}

let pinned = null;
const show = (policy) => {
  for (const part of document.querySelectorAll("figure [data-policy]")) {
    part.classList.toggle("faded", policy !== null && part.dataset.policy !== policy);
    part.classList.toggle("lit", part.dataset.policy === policy);
  }
  for (const key of document.querySelectorAll(".legend li")) key.setAttribute("aria-pressed", String(key.dataset.policy === pinned));
};
for (const key of document.querySelectorAll(".legend li")) {
  const pin = () => {
    pinned = pinned === key.dataset.policy ? null : key.dataset.policy;
    show(pinned);
  };
  key.tabIndex = 0;
  key.setAttribute("role", "button");
  key.setAttribute("aria-pressed", "false");
  key.addEventListener("click", pin);
  key.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    pin();
  });
}
for (const source of document.querySelectorAll(".legend li, tr[data-policy]")) {
  source.addEventListener("pointerenter", () => show(source.dataset.policy));
  source.addEventListener("pointerleave", () => show(pinned));
}
