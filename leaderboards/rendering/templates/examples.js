"use strict";
// Model output is hostile text: it goes into the page as text and never as markup.

const data = JSON.parse(document.getElementById("data").textContent);
const [policies, levels, verdicts, shades] = ["policy", "asked", "verdict", "shade"].map((id) => document.getElementById(id));
const place = document.getElementById("examples");

const element = (name, className, text) => {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
};

const within = (spans, start, end) => {
  for (let index = 0; index < spans.length; index += 2) if (start < spans[index + 1] && end > spans[index]) return true;
  return false;
};

// The share of attention by token in a layer; null where it is not known.
const attentionOf = (answer, layer) => {
  const pairs = answer.attention?.[layer];
  if (!pairs) return null;
  const shares = new Map();
  for (let index = 0; index < pairs.length; index += 2) shares.set(pairs[index], pairs[index + 1]);
  return shares;
};

// One element for each token. Its shade is the share of slots that keep it, or of a layer's attention, beside the most
// that any token of the context has.
const strip = (context, question, answer, layer) => {
  const kept = answer.kept;
  const shares = kept === null ? null : Uint8Array.from(atob(kept), (letter) => letter.charCodeAt(0));
  const attention = layer === null ? null : attentionOf(answer, layer) ?? new Map();
  const most = attention === null ? 1 : Math.max(...attention.values(), 1e-9);
  const letters = [...context.text];
  const made = element("p", "strip");
  let start = 0;
  context.ends.forEach((end, index) => {
    const token = element("span", "token", letters.slice(start, end).join(""));
    const share = shares === null ? 1 : shares[index] / 255;
    const read = attention?.get(index) ?? 0;
    token.style.setProperty("--kept", attention === null ? share : read / most);
    token.classList.toggle("gone", share === 0);
    const from = start + (letters[start] === " " ? 1 : 0);
    token.classList.toggle("answer", within(question.answer, from, end));
    token.classList.toggle("evidence", within(question.evidence, from, end));
    token.title = shares === null ? "not known: the policy rewrites the cache" : `kept in ${Math.round(100 * share)} % of all slots`;
    if (attention !== null) token.title += `; ${read ? (100 * read).toFixed(1) : "less than the most read"} % of the attention in layer ${layer}`;
    made.append(token);
    start = end;
  });
  return made;
};

// How well the gold answer reaches the place where the answer is written.
const routeOf = (answer) => {
  if (answer.unobserved) return `not observed: ${answer.unobserved}`;
  return answer.width ? `its narrowest step has ${percent(answer.width)} of a head’s attention` : "none is left";
};

const facts = (pairs) => {
  const list = element("dl", "answers");
  for (const [name, text, className] of pairs) {
    const group = element("div");
    group.append(element("dt", "", name), element("dd", className, text === "" ? "(nothing)" : text));
    list.append(group);
  }
  return list;
};

const percent = (share) => (share === null ? "–" : `${(100 * share).toFixed(0)} %`);

const LAYER = "attention, layer ";
const KEPT = "kept";

const figure = (answer) => {
  const [question, context] = [data.questions[answer.question], data.contexts[answer.context]];
  const made = element("article", "example");
  made.append(element("h2", "asked", question.text || "(the context asks for itself)"));
  made.append(facts([
    ...(question.golds.length ? [["gold", question.golds.join(" / ")]] : []),
    ["full cache", question.full ?? "–"],
    ["this policy", answer.output ?? "–", "output"],
    ["verdict", answer.verdict, answer.wrong ? "verdict" : ""],
  ]));
  made.append(strip(context, question, answer, shades.value.startsWith(LAYER) ? Number(shades.value.slice(LAYER.length)) : null));
  if ("unobserved" in answer) made.append(element("p", "route-text", `Route from the gold answer: ${routeOf(answer)}.`));
  const known = [
    ["GER", answer.ger, percent],
    ["slot coverage of the evidence", answer.coverage, percent],
    ["context evicted everywhere", answer.evicted, percent],
    ["realised ratio", answer.realised, percent],
    ["F1", answer.f1, (score) => score.toFixed(0)],
    ["directives obeyed", answer.obeyed, percent],
  ].filter(([, value]) => value !== null);
  made.append(element("p", "quiet", known.map(([name, value, write]) => `${name} ${write(value)}`).join(", ")));
  return made;
};

const fill = (select, names, chosen) => {
  select.replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
};

const ALL = "all";
const kind = (answer) => answer.verdict.replace(/[:,].*/, "").replace(/ \d+ %$/, "");

const draw = () => {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const names = Object.keys(data.cells);
  const policy = names.includes(wanted.get("policy")) ? wanted.get("policy") : data.first;
  const known = Object.keys(data.cells[policy] ?? {}).sort((one, other) => one - other);
  const asked = known.includes(wanted.get("level")) ? wanted.get("level") : known[Math.floor(known.length / 2)];
  fill(policies, names, policy);
  fill(levels, known, asked);
  const answers = data.cells[policy]?.[asked] ?? [];
  const kinds = [ALL, ...new Set(answers.map(kind))];
  const verdict = kinds.includes(wanted.get("verdict")) ? wanted.get("verdict") : ALL;
  fill(verdicts, kinds, verdict);
  const layers = Math.max(0, ...answers.map((answer) => answer.attention?.length ?? 0));
  const ways = [KEPT, ...Array.from({ length: layers }, (_, layer) => LAYER + layer)];
  fill(shades, ways, ways.includes(wanted.get("shade")) ? wanted.get("shade") : KEPT);
  document.getElementById("shades").hidden = !layers;
  document.getElementById("scale").hidden = shades.value !== KEPT;
  place.replaceChildren(...answers.filter((answer) => verdict === ALL || kind(answer) === verdict).map(figure));
};

const choose = () => {
  location.hash = new URLSearchParams({ policy: policies.value, level: levels.value, ...(verdicts.value !== ALL && { verdict: verdicts.value }), ...(shades.value !== KEPT && shades.value && { shade: shades.value }) });
};
verdicts.addEventListener("change", choose);
policies.addEventListener("change", choose);
levels.addEventListener("change", choose);
shades.addEventListener("change", choose);
window.addEventListener("hashchange", draw);
draw();
