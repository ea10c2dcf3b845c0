"use strict";
// Pointing at a plot, or walking through it with the arrow keys, tells the numbers of the nearest point.

for (const source of document.querySelectorAll(".canvas > script")) {
  const canvas = source.parentElement;
  const svg = canvas.querySelector("svg");
  const box = svg.viewBox.baseVal;
  let spots = null;
  let names, chosen;
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  const ring = document.createElementNS(svg.namespaceURI, "circle");
  ring.setAttribute("class", "ring");
  ring.setAttribute("r", 6);

  const read = () => {
    if (spots) return;
    const data = JSON.parse(source.textContent);
    names = data.names;
    const written = (text) => (typeof text === "number" ? data.texts[text] : text).replace("\t", "95 % interval ");
    spots = data.spots.map(([policy, x, y, ...texts]) => {
      const [level, ...lines] = texts.map(written);
      return { policy, x, y, level, lines };
    });
    canvas.append(tip);
  };
  const part = (name, className, text) => {
    const made = document.createElement(name);
    made.className = className;
    made.textContent = text;
    return made;
  };
  const faded = (spot) => svg.querySelector(`[data-policy="${spot.policy}"]`)?.classList.contains("faded") ?? false;
  const light = (policy) => {
    for (const band of svg.querySelectorAll(".band")) band.classList.toggle("lit", band.dataset.policy === String(policy));
  };
  const hide = () => {
    tip.hidden = true;
    ring.remove();
    light(null);
  };
  // Beside the point, on the side that has room, and never beyond the plot: a phone has nothing there.
  const place = (spot) => {
    const [across, down] = [(spot.x / box.width) * canvas.clientWidth, (spot.y / box.height) * canvas.clientHeight];
    const left = across > canvas.clientWidth / 2 ? across - tip.offsetWidth - 14 : across + 14;
    tip.style.left = `${Math.max(0, Math.min(left, canvas.clientWidth - tip.offsetWidth))}px`;
    tip.style.top = `${Math.max(0, Math.min(down - tip.offsetHeight / 2, canvas.clientHeight - tip.offsetHeight))}px`;
  };
  const show = (spot) => {
    if (chosen === spot && !tip.hidden) return;
    chosen = spot;
    const others = spots.filter((one) => one.policy !== spot.policy && Math.hypot(one.x - spot.x, one.y - spot.y) < 2);
    const here = [...new Set(others.map((one) => names[one.policy]))];
    const lines = spot.lines.map((line) => part("span", "", line));
    if (here.length) lines.push(part("span", "quiet", `also here: ${here.join(", ")}`));
    tip.replaceChildren(part("b", "", `${names[spot.policy]} at ${spot.level}`), ...lines);
    ring.setAttribute("cx", spot.x);
    ring.setAttribute("cy", spot.y);
    svg.append(ring);
    light(spot.policy);
    tip.hidden = false;
    place(spot);
  };

  const point = (event) => {
    read();
    const frame = svg.getBoundingClientRect();
    const scale = frame.width / box.width;
    const away = (spot) => Math.hypot(frame.left + spot.x * scale - event.clientX, frame.top + spot.y * scale - event.clientY);
    const nearest = spots.filter((spot) => !faded(spot)).reduce((best, spot) => (best && away(best) <= away(spot) ? best : spot), null);
    if (nearest && away(nearest) <= 40) show(nearest);
    else hide();
  };
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerdown", point);
  // A finger leaves as it is lifted, and what it has shown has to stay.
  canvas.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
  document.addEventListener("pointerdown", (event) => canvas.contains(event.target) || hide());

  // Up and down, at the same level or else the nearest place, from policy to policy.
  const across = (spot) => {
    const apart = (one) => Math.abs(one.x - spot.x) + (one.level === spot.level ? 0 : box.width);
    const nearest = new Map();
    for (const one of spots) if (!nearest.has(one.policy) || apart(one) < apart(nearest.get(one.policy))) nearest.set(one.policy, one);
    nearest.set(spot.policy, spot);
    return [...nearest.values()].sort((one, other) => one.y - other.y);
  };
  const along = (spot) => spots.filter((one) => one.policy === spot.policy).sort((one, other) => one.x - other.x);
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "group");
  canvas.setAttribute("aria-label", `${svg.querySelector("title").textContent}. Left and right: along a policy; up and down: to another.`);
  canvas.addEventListener("focus", () => {
    read();
    if (spots.length && canvas.matches(":focus-visible")) show(chosen ?? spots[0]);
  });
  canvas.addEventListener("blur", hide);
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || !spots.length) return;
    event.preventDefault();
    const spot = chosen ?? spots[0];
    const line = event.key === "ArrowUp" || event.key === "ArrowDown" ? across(spot) : along(spot);
    show(line[Math.max(0, Math.min(line.indexOf(spot) + step, line.length - 1))]);
  });
}
