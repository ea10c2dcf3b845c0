// The boards as an instrument: which one is shown, of which policies, at which level, and two of its rows compared.
// Names are hostile text, as model output is: they go into the page as text and never as markup.

const source = document.getElementById("board-data");
if (source) {
  const { boards, columns, reasons, encounters } = JSON.parse(source.textContent);
  for (const board of boards) for (const level of board.levels) level.columns = level.columns.map((index) => columns[index]);
  const form = document.getElementById("filters");
  const place = document.getElementById("comparison");
  const legend = [...document.querySelectorAll("#columns [data-column]")]; // of all boards, whose columns are much the same
  const field = (name) => document.getElementById(`filter-${name}`);
  const distinct = (values) => [...new Set(values)];
  const element = (name, className, ...content) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    made.append(...content);
    return made;
  };
  const heading = (text, scope, span) => {
    const made = element("th", scope === "row" ? "" : "ratio", text);
    made.scope = scope;
    if (span) made.colSpan = span;
    return made;
  };

  // --- one board

  const filled = (values) => {
    if (typeof values === "string") {
      const blank = element("td", "blank", element("b", "", values[0]));
      blank.title = values.slice(2);
      return blank;
    }
    const [text, sort, detail] = values;
    const made = element("td", "", element("b", "", text), " ", element("i", "", detail ?? ""));
    made.dataset.sort = sort || Number(text);
    return made;
  };

  const cellsIn = (row) => row.split("|").map((cell) => filled(cell.startsWith("#") ? reasons[cell.slice(1)] : cell.split(";")));

  // Puts the columns of a level where those of the usual ones stand, or takes them away again.
  const setLevel = (board, level) => {
    const table = board.table;
    for (const each of table.querySelectorAll(".chosen")) each.remove();
    const first = [...table.tHead.rows[0].cells].findIndex((cell) => cell.dataset.level !== undefined);
    const usual = [...table.tHead.rows[0].cells].map((cell) => cell.dataset.level !== undefined);
    for (const row of table.rows) usual.forEach((is, index) => (row.cells[index].hidden = is && level !== undefined));
    if (level === undefined) return;
    const before = (row) => row.cells[first < 0 ? row.cells.length : first] ?? null;
    const put = (row, cells) => {
      const next = before(row);
      for (const cell of cells) {
        cell.classList.add("chosen");
        row.insertBefore(cell, next);
      }
    };
    const marked = (cell, index) => {
      cell.classList.toggle("extra", !level.columns[index][2]);
      return cell;
    };
    put(table.tHead.rows[0], level.columns.map(([name, meaning, , shortFor], index) => {
      const made = heading(name, "col");
      made.title = meaning;
      if (shortFor) made.dataset.of = shortFor;
      return marked(made, index);
    }));
    board.rows.forEach((row, index) => put(row, cellsIn(level.rows[index]).map(marked)));
  };

  for (const board of boards) {
    board.element = document.getElementById(board.id);
    board.table = board.element.querySelector("table");
    board.rows = [...board.table.querySelectorAll("tbody tr")];
    board.sort = sortable(board.table, "sort");
    // Which columns are extra stands at their headings, and what a column means below the board.
    const extra = [...board.table.tHead.rows[0].cells].map((heading) => heading.classList.contains("extra"));
    for (const row of board.rows) [...row.cells].forEach((cell, index) => cell.classList.toggle("extra", extra[index]));
    for (const heading of [...board.table.tHead.rows[0].cells].slice(1)) {
      const name = heading.textContent;
      const meanings = legend.filter((entry) => entry.dataset.column === name);
      heading.title = meanings.map((entry) => entry.textContent.slice(`${name}: `.length)).join("; ");
    }
    for (const row of encounters[board.results] ? board.rows : []) {
      const pick = element("input", "pick");
      pick.type = "checkbox";
      pick.setAttribute("aria-label", `Compare ${row.dataset.name}`);
      pick.addEventListener("change", () => {
        const others = address.all("compare").filter((name) => name !== row.dataset.name);
        address.set({ compare: pick.checked ? [...others, row.dataset.name].slice(-2) : others });
        if (!place.hidden) place.scrollIntoView({ block: "nearest" });
      });
      row.cells[0].prepend(pick);
    }
  }

  // --- two rows

  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
  const NOTHING = -128;
  const NUMBERS = 8;
  for (const each of encounters.filter(Boolean)) {
    each.numbers = new Int8Array(bytes(each.numbers));
    const p = new DataView(bytes(each.p));
    each.thousandths = (index) => p.getUint16(2 * index, true);
  }
  const signed = (number) => `${number < 0 ? "-" : "+"}${Math.abs(number)}`;
  const turned = ([mean, low, high], turn) => (turn && mean !== NOTHING ? [-mean, low === NOTHING ? NOTHING : -high, low === NOTHING ? NOTHING : -low] : [mean, low, high]);

  // What two policies come to at a task and level, the first minus the other; nothing where they share no question.
  const meeting = (found, one, other, task, level) => {
    const [first, second] = one < other ? [one, other] : [other, one];
    const count = found.policies.length;
    const pair = (first * (2 * count - first - 1)) / 2 + second - first - 1;
    const index = (pair * found.tasks.length + task) * found.levels.length + level;
    const own = found.numbers.subarray(index * NUMBERS, (index + 1) * NUMBERS);
    if (own[0] === NOTHING) return null;
    const turn = one > other;
    const side = turn ? -1 : 1;
    return {
      lead: turned(own.subarray(0, 3), turn),
      wrong: turned(own.subarray(3, 6), turn),
      verdict: side * own[6],
      errs: side * own[7],
      p: found.thousandths(index),
    };
  };
  const TONES = { 1: ["better", "▲"], 0: ["not distinguished", ""], "-1": ["worse", "▼"] };
  const difference = ([mean, low, high], tone, few) => {
    if (mean === NOTHING) return filled("no such measure on this task");
    const [word, sign] = TONES[tone];
    const made = element("td", `verdict ${word}${few ? " few" : ""}`);
    if (sign) {
      const mark = element("span", "mark", sign);
      mark.setAttribute("aria-hidden", "true");
      made.append(mark, element("span", "unseen", `${word}: `));
    }
    made.append(element("b", "", signed(mean)), " ");
    made.append(element("i", "", low === NOTHING ? "" : `[${signed(low)}, ${signed(high)}]`));
    return made;
  };
  const written = (thousandths) => (thousandths === 0 ? "<0.001" : (thousandths / 1000).toFixed(3));
  const cellsOf = (met, few, reason) => {
    if (met === null) return [0, 1, 2].map(() => filled(reason ?? "not complete"));
    return [difference(met.lead, met.verdict, few), element("td", "", element("b", "", written(met.p))), difference(met.wrong, met.errs, few)];
  };

  const summary = (found, one, other) => {
    const verdicts = found.tasks.flatMap((_, task) => found.levels.map((_, level) => meeting(found, one, other, task, level)?.verdict));
    const count = (verdict) => verdicts.filter((each) => each === verdict).length;
    const total = verdicts.filter((each) => each !== undefined).length;
    return `better in ${count(1)}, worse in ${count(-1)}, not distinguished in ${count(0)} of ${total} cells; the levels of a task are corrected together (Holm)${found.few ? `. Only ${found.few} contexts in a cell: such verdicts say little` : ""}`;
  };

  const comparison = (found, names, level) => {
    const [one, other] = names.map((name) => found.policies.indexOf(name));
    const levels = (level ? [level] : found.shown).map((text) => found.levels.indexOf(text)).filter((index) => index >= 0);
    document.getElementById("comparison-title").textContent = `${names[0]} against ${names[1]}`;
    document.getElementById("comparison-summary").textContent = `Over all tasks and levels: ${summary(found, one, other)}.`;
    const table = document.getElementById("comparison-table");
    const [above, below] = [element("tr"), element("tr")];
    above.append(element("td"), ...levels.map((index) => heading(`at ${found.levels[index]}`, "colgroup", 3)));
    below.append(heading("task", "col"), ...levels.flatMap(() => ["right", "p", "wrong of answered"].map((text) => heading(text, "col"))));
    below.cells[0].className = "";
    table.tHead.replaceChildren(above, below);
    table.tBodies[0].replaceChildren(...found.tasks.map((task, index) => {
      const row = element("tr");
      row.append(heading(task, "row"), ...levels.flatMap((at) => cellsOf(meeting(found, one, other, index, at), found.few, found.unmastered[task])));
      return row;
    }));
  };

  const compare = (board, level) => {
    const found = encounters[board.results];
    const names = [...new Set(address.all("compare"))].filter((name) => found?.policies.includes(name)).slice(0, 2);
    for (const row of board.rows) for (const pick of row.querySelectorAll(".pick")) pick.checked = names.includes(row.dataset.name);
    place.hidden = names.length !== 2;
    if (!place.hidden) comparison(found, names, level);
  };
  document.getElementById("comparison-turn").addEventListener("click", () => address.set({ compare: address.all("compare").reverse() }));
  document.getElementById("comparison-close").addEventListener("click", () => address.set({ compare: null }));

  // --- all of it

  const fill = (name, options, chosen) => {
    const select = field(name);
    select.replaceChildren(...options.map(([value, text]) => new Option(text, value, false, value === chosen)));
    select.closest("label").hidden = options.length < 2;
  };
  const choice = (name, options) => {
    const values = options.map(([value]) => value);
    const chosen = values.includes(address.get(name)) ? address.get(name) : values[0];
    fill(name, options, chosen);
    return chosen;
  };
  const plain = (values) => distinct(values).map((value) => [value, value]);

  const showRows = (board, family, part) => {
    const methods = board.rows.filter((row) => !row.closest("tbody").classList.contains("controls"));
    const fits = (row) => (!family || row.dataset.family === family) && row.dataset.name.toLowerCase().includes(part);
    for (const row of methods) row.hidden = !fits(row);
    const count = methods.filter((row) => !row.hidden).length;
    const [all, others] = [methods.length, board.rows.length - methods.length];
    document.getElementById("filter-count").textContent = `${count} of ${all} method${all === 1 ? "" : "s"}, and ${others} control${others === 1 ? "" : "s"}`;
  };

  const apply = () => {
    let left = boards;
    for (const name of ["model", "mode", "setting", "task"]) {
      const options = name === "task" ? left.map((board) => [board.task, board.name]) : plain(left.map((board) => board[name]));
      const chosen = choice(name, options);
      left = left.filter((board) => board[name] === chosen);
    }
    const [board] = left;
    for (const each of boards) each.element.hidden = each !== board;
    const families = distinct(board.rows.map((row) => row.dataset.family).filter((family) => family && family !== "control"));
    const family = choice("family", [["", "all"], ...families.map((name) => [name, name])]);
    const level = choice("level", [["", board.usual], ...board.levels.map(({ level }) => [level, level])]);
    document.getElementById("filter-kind").textContent = board.kind;
    const part = address.get("name") ?? "";
    if (field("name").value !== part) field("name").value = part;
    showRows(board, family, part.toLowerCase());
    setLevel(board, board.levels.find((each) => each.level === level));
    const all = address.get("columns") === "all";
    field("columns").checked = all;
    board.element.classList.toggle("short", !all);
    const blanks = board.rows.flatMap((row) => (row.hidden ? [] : [...row.querySelectorAll(".blank")].filter((cell) => !cell.hidden && (all || !cell.classList.contains("extra")))));
    const headings = [...board.table.tHead.rows[0].cells];
    const columns = headings.map((cell) => cell.textContent);
    const inView = columns.filter((_, index) => !headings[index].hidden && (all || !headings[index].classList.contains("extra")));
    for (const entry of legend) entry.hidden = !inView.includes(entry.dataset.column);
    const where = (reason) => distinct(blanks.filter((cell) => cell.title === reason).map((cell) => columns[cell.cellIndex]));
    const reasons = distinct(blanks.map((cell) => cell.title));
    tellReasons(board.element.querySelector(".why"), reasons.map((reason) => `${blanks.find((cell) => cell.title === reason).querySelector("b").textContent} in ${where(reason).join(", ")}: ${reason}`));
    board.sort();
    compare(board, level);
  };

  for (const name of ["model", "mode", "setting", "task", "family", "level"]) {
    field(name).addEventListener("change", (event) => address.set({ [name]: event.target.value }));
  }
  field("columns").addEventListener("change", (event) => address.set({ columns: event.target.checked ? "all" : null }));
  // Each letter is not a step that "back" should take.
  field("name").addEventListener("input", (event) => address.set({ name: event.target.value }, false));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    address.set(Object.fromEntries(["model", "mode", "setting", "task", "family", "level", "columns", "name", "sort", "compare"].map((name) => [name, null])));
  });
  form.hidden = false;
  address.follow(apply);
  if (["task", "sort", "compare", "level", "columns", "family", "name"].some((name) => address.get(name))) {
    document.getElementById("boards").scrollIntoView({ behavior: "instant" });
  }
}
