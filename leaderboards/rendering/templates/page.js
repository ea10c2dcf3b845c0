// The page is complete without this: it turns stacked tables into tabs, sorts columns, and picks a line out of the curves.

for (const group of document.querySelectorAll(".measures")) {
  const section = group.closest("section").id;
  const tabs = [...group.querySelectorAll("[role=tab]")];
  const panels = tabs.map((tab) => document.getElementById(tab.getAttribute("aria-controls")));
  const names = panels.map((panel) => panel.id.slice(section.length + 1));
  const choose = (index) => address.set({ [section]: index ? names[index] : null });
  tabs.forEach((tab, index) => {
    panels[index].setAttribute("role", "tabpanel");
    panels[index].setAttribute("aria-labelledby", tab.id);
    tab.addEventListener("click", () => choose(index));
    tab.addEventListener("keydown", (event) => {
      const last = tabs.length - 1;
      const next = { ArrowRight: index === last ? 0 : index + 1, ArrowLeft: index ? index - 1 : last, Home: 0, End: last }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      choose(next);
      tabs[next].focus();
    });
  });
  group.querySelector("[role=tablist]").hidden = false;
  group.classList.add("tabbed");
  address.follow(() => {
    const chosen = Math.max(0, names.indexOf(address.get(section)));
    tabs.forEach((tab, index) => {
      tab.setAttribute("aria-selected", String(index === chosen));
      tab.tabIndex = index === chosen ? 0 : -1;
      panels[index].hidden = index !== chosen;
    });
  });
}

// Why cells are blank, told below a table: the title of a cell is nowhere on a phone.
const tellReasons = (list, lines) => {
  list.replaceChildren(...[...new Set(lines)].map((line) => {
    const made = document.createElement("li");
    made.textContent = line;
    return made;
  }));
};

// Makes the headings of a table buttons; returns what sorts it as the address says, under `name`, "descending:column".
const sortable = (table, name) => {
  const bodies = [...table.querySelectorAll("tbody.sortable")];
  // A cell that shows its number in full says it once.
  for (const cell of table.querySelectorAll(".sortable td:not(.blank, .withheld, [data-sort])")) {
    cell.dataset.sort = Number(cell.querySelector("b").textContent);
  }
  const original = bodies.map((body) => [...body.rows]);
  const headings = () => [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  const wanted = () => {
    const [direction, ...rest] = (address.get(name) ?? "").split(":");
    return { direction: direction === "ascending" ? direction : "descending", column: rest.join(":") };
  };
  const dress = (heading, index) => {
    if (heading.querySelector("button")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...heading.childNodes);
    heading.append(button);
    // A name is first wanted from the top, a number from the highest.
    const order = index === 0 ? ["ascending", "descending", null] : ["descending", "ascending", null];
    button.addEventListener("click", () => {
      const next = order[(order.indexOf(heading.getAttribute("aria-sort")) + 1) % order.length];
      address.set({ [name]: next && `${next}:${heading.textContent}` });
    });
  };
  // Blanks come last in either direction: they are no value at all.
  const compare = (column, sign) => (one, other) => {
    if (column === 0) return sign * one.cells[0].textContent.trim().localeCompare(other.cells[0].textContent.trim());
    const [a, b] = [one, other].map((row) => row.cells[column].dataset.sort);
    if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
    return sign * (Number(a) - Number(b));
  };
  return () => {
    const { direction, column } = wanted();
    headings().forEach(dress);
    const index = headings().findIndex((heading) => !heading.hidden && heading.textContent === column);
    headings().forEach((heading, place) => {
      if (place === index) heading.setAttribute("aria-sort", direction);
      else heading.removeAttribute("aria-sort");
    });
    bodies.forEach((body, place) => {
      const rows = [...original[place]];
      if (index >= 0) rows.sort(compare(index, direction === "ascending" ? 1 : -1));
      body.append(...rows);
    });
  };
};
for (const table of document.querySelectorAll(".panel table.heat")) {
  address.follow(sortable(table, `${table.closest(".panel").id}-sort`));
}

// A line that is pinned stands in the address by the name of its policy.
let pinned = null;
const show = (policy) => {
  for (const part of document.querySelectorAll("figure [data-policy]")) {
    part.classList.toggle("faded", policy !== null && part.dataset.policy !== policy);
    part.classList.toggle("lit", part.dataset.policy === policy);
  }
  for (const key of document.querySelectorAll(".legend li")) key.setAttribute("aria-pressed", String(key.dataset.policy === pinned));
};
for (const key of document.querySelectorAll(".legend li")) {
  const pin = () => address.set({ line: pinned === key.dataset.policy ? null : key.textContent.trim() });
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
address.follow(() => {
  const wanted = address.get("line");
  pinned = [...document.querySelectorAll(".legend li")].find((key) => key.textContent.trim() === wanted)?.dataset.policy ?? null;
  show(pinned);
});
for (const source of document.querySelectorAll(".legend li, tr[data-policy]")) {
  source.addEventListener("pointerenter", () => show(source.dataset.policy));
  source.addEventListener("pointerleave", () => show(pinned));
}
