// The boards as an instrument: which one is shown, of which policies, and which columns of it.
// Names are hostile text, as model output is: they go into the page as text and never as markup.

const source = document.getElementById("board-data");
if (source) {
  const boards = JSON.parse(source.textContent);
  const form = document.getElementById("filters");
  const legend = [...document.querySelectorAll("#columns [data-column]")]; // of all boards, whose columns are much the same
  const field = (name) => document.getElementById(`filter-${name}`);
  const distinct = (values) => [...new Set(values)];

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
  }

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
    const part = address.get("name") ?? "";
    if (field("name").value !== part) field("name").value = part;
    showRows(board, family, part.toLowerCase());
    const all = address.get("columns") === "all";
    field("columns").checked = all;
    board.element.classList.toggle("short", !all);
    const blanks = board.rows.flatMap((row) => (row.hidden ? [] : [...row.querySelectorAll(".blank")].filter((cell) => all || !cell.classList.contains("extra"))));
    const headings = [...board.table.tHead.rows[0].cells];
    const columns = headings.map((cell) => cell.textContent);
    const inView = columns.filter((_, index) => (all || !headings[index].classList.contains("extra")));
    for (const entry of legend) entry.hidden = !inView.includes(entry.dataset.column);
    const where = (reason) => distinct(blanks.filter((cell) => cell.title === reason).map((cell) => columns[cell.cellIndex]));
    const reasons = distinct(blanks.map((cell) => cell.title));
    tellReasons(board.element.querySelector(".why"), reasons.map((reason) => `${blanks.find((cell) => cell.title === reason).querySelector("b").textContent} in ${where(reason).join(", ")}: ${reason}`));
    board.sort();
  };

  for (const name of ["model", "mode", "setting", "task", "family"]) {
    field(name).addEventListener("change", (event) => address.set({ [name]: event.target.value }));
  }
  field("columns").addEventListener("change", (event) => address.set({ columns: event.target.checked ? "all" : null }));
  // Each letter is not a step that "back" should take.
  field("name").addEventListener("input", (event) => address.set({ name: event.target.value }, false));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    address.set(Object.fromEntries(["model", "mode", "setting", "task", "family", "columns", "name", "sort"].map((name) => [name, null])));
  });
  form.hidden = false;
  address.follow(apply);
  if (["task", "sort", "columns", "family", "name"].some((name) => address.get(name))) {
    document.getElementById("boards").scrollIntoView({ behavior: "instant" });
  }
}
