"use strict";
// Model output is hostile text: it goes into the page as text and never as markup.

const unpack = async (text) => {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const end = bytes.indexOf(0);
  return [JSON.parse(new TextDecoder().decode(bytes.subarray(0, end))), bytes.subarray(end + 1)];
};

let data, kept;
const [policies, levels, verdicts] = ["policy", "asked", "verdict"].map((id) => document.getElementById(id));
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

// One element for each token. Its shade is the share of slots that keep it.
const strip = (context, question, answer) => {
  const shares = answer.kept === null ? null : kept.subarray(answer.kept);
  const letters = [...context.text];
  const made = element("p", "strip");
  let start = 0;
  context.ends.forEach((end, index) => {
    const token = element("span", "token", letters.slice(start, end).join(""));
    const share = shares === null ? 1 : shares[index] / 255;
    token.style.setProperty("--kept", share);
    token.classList.toggle("gone", share === 0);
    const from = start + (letters[start] === " " ? 1 : 0);
    token.classList.toggle("answer", within(question.answer, from, end));
    token.classList.toggle("evidence", within(question.evidence, from, end));
    token.title = shares === null ? "not known: the policy rewrites the cache" : `kept in ${Math.round(100 * share)} % of all slots`;
    made.append(token);
    start = end;
  });
  return made;
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
  made.append(strip(context, question, answer));
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
  place.replaceChildren(...answers.filter((answer) => verdict === ALL || kind(answer) === verdict).map(figure));
};

const choose = () => {
  location.hash = new URLSearchParams({ policy: policies.value, level: levels.value, ...(verdicts.value !== ALL && { verdict: verdicts.value }) });
};
verdicts.addEventListener("change", choose);
policies.addEventListener("change", choose);
levels.addEventListener("change", choose);
const begin = (unpacked) => {
  [data, kept] = unpacked;
  window.addEventListener("hashchange", draw);
  draw();
  place.ariaBusy = "false";
};
const excuse = (problem) => {
  place.ariaBusy = "false";
  place.textContent = `This browser cannot unpack the examples (${problem}): a newer one can.`;
};
unpack(document.getElementById("data").textContent).then(begin, excuse);
