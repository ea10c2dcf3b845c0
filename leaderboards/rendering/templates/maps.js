"use strict";
// A heat map shows one of its layers; with the script, any of them can be chosen, and stands in the address.

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
    const reasons = [];
    const [low, high] = data.ends[layer.measure];
    layer.rows.forEach((row, line) => row.split(" ").forEach((content, column) => {
      const cell = cells[line][column];
      const blank = content.startsWith("#");
      const reason = blank ? data.reasons[content.slice(1)] : "";  // its sign, and the reason
      cell.className = blank ? "blank" : "";
      cell.textContent = blank ? reason[0] : content;
      cell.title = reason.slice(2);
      cell.style.setProperty("--heat", blank ? 0 : (Number(content) - low) / (high - low || 1));
      if (blank) reasons.push(`${reason[0]}: ${reason.slice(2)}`);
    }));
    tellReasons(map.querySelector(".why"), reasons);
  };
  const chosen = () => choices.map((choice) => choice.value).join("/");
  const usual = chosen();
  let drawn = usual;
  choices.forEach((choice) => choice.addEventListener("change", () => address.set({ [map.id]: chosen() === usual ? null : chosen() })));
  address.follow(() => {
    const wanted = Object.hasOwn(data.layers, address.get(map.id)) ? address.get(map.id) : usual;
    if (wanted === drawn) return;
    // The name of a policy may hold the sign between the parts of a key, that of a measure does not.
    const at = wanted.indexOf("/");
    choices.forEach((choice, place) => (choice.value = place ? wanted.slice(at + 1) : wanted.slice(0, at)));
    drawn = wanted;
    draw();
  });
  if (drawn !== usual) map.scrollIntoView({ behavior: "instant" });
  map.querySelector(".choice").hidden = false;
}
