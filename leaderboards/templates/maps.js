"use strict";
// A heat map shows one of its layers; with the script, any of them can be chosen.

for (const source of document.querySelectorAll(".map > script")) {
  const map = source.parentElement;
  const table = map.querySelector("table");
  const choices = [...map.querySelectorAll("select")];
  const data = JSON.parse(source.textContent);
  const cells = [...table.querySelectorAll("tbody tr:not(.group)")].map((row) => [...row.querySelectorAll("td")]);
  const draw = () => {
    const layer = data.layers[choices.map((choice) => choice.value).join("/")];
    map.dataset.measure = layer.measure;
    map.querySelector(".told").textContent = data.told[layer.measure];
    const reasons = new Set();
    layer.cells.forEach((row, line) => row.forEach((content, column) => {
      const cell = cells[line][column];
      const blank = typeof content === "number";
      cell.className = blank ? "blank" : "";
      cell.textContent = blank ? "–" : content;
      cell.title = blank ? data.reasons[content] : "";
      cell.style.setProperty("--heat", blank ? 0 : Number(content) / data.tops[layer.measure]);
      if (blank) reasons.add(data.reasons[content]);
    }));
    map.querySelector(".why").replaceChildren(...[...reasons].map((reason) => {
      const made = document.createElement("li");
      made.textContent = `–: ${reason}`;
      return made;
    }));
  };
  choices.forEach((choice) => choice.addEventListener("change", draw));
  map.querySelector(".choice").hidden = false;
}
