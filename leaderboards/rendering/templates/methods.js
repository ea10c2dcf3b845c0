// The tables of methods: of which model, which rows and ratios, and in which order. The address holds each choice.

const tables = [...document.querySelectorAll(".methods")];
const choices = document.getElementById("filters");
const control = (name) => document.getElementById(`filter-${name}`);
const orders = tables.map((table) => sortable(table.querySelector("table"), "sort"));
const titles = tables.map((table) => table.dataset.title);
control("model").replaceChildren(...titles.map((title) => new Option(title, title)));
control("model").closest("label").hidden = titles.length < 2;

// A loss has a column for each ratio, whose name ends with it.
const ratios = [...control("removed").options].map((option) => option.value);
const showRatio = (table, chosen) => {
  const ratioOf = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim().split(", ").at(-1));
  for (const row of table.querySelectorAll("tr")) {
    [...row.cells].forEach((cell, index) => {
      cell.hidden = chosen !== "both" && ratios.includes(ratioOf[index]) && ratioOf[index] !== chosen;
    });
  }
};

const chooseRows = () => {
  const model = titles.includes(address.get("model")) ? address.get("model") : titles[0];
  const family = address.get("family") ?? "";
  const part = address.get("name") ?? "";
  const removed = ratios.includes(address.get("removed")) ? address.get("removed") : ratios[0];
  control("model").value = model;
  control("family").value = family;
  control("removed").value = removed;
  if (control("name").value !== part) control("name").value = part;
  tables.forEach((table, index) => {
    table.hidden = table.dataset.title !== model;
    if (table.hidden) return;
    const rows = [...table.querySelectorAll("tbody tr")];
    for (const row of rows) {
      row.hidden = !((!family || row.dataset.family === family) && row.dataset.name.toLowerCase().includes(part.toLowerCase()));
    }
    control("count").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
    showRatio(table, removed);
    orders[index]();
  });
};

for (const name of ["model", "family", "removed"]) control(name).addEventListener("change", (event) => address.set({ [name]: event.target.value || null }));
// Each letter is not a step that "back" should take.
control("name").addEventListener("input", (event) => address.set({ name: event.target.value || null }, false));
choices.addEventListener("submit", (event) => event.preventDefault());
choices.hidden = false;
address.follow(chooseRows);
