"use strict";
// Filters and sorts the table of results; the charts show the same rows. Without it the page is whole, and plain.
const table = document.getElementById("results");
const body = table.tBodies[0];
const headings = [...table.tHead.rows[0].cells];
const rows = [...body.rows];
const form = document.getElementById("filter");
const shown = document.getElementById("shown");
const points = new Map();
for (const link of document.querySelectorAll("#charts figure a")) {
  const id = decodeURIComponent(link.getAttribute("href").slice(1));
  points.set(id, [...(points.get(id) || []), link]);
}

// What a cell holds does not change, and asking the page for it thousands of times is slow.
const texts = new Map(rows.map((row) => [row, [...row.cells].map((cell) => cell.textContent.trim().toLowerCase())]));

function matches(row) {
  return [...form.elements].every((field) => {
    const wanted = field.value.trim().toLowerCase();
    if (!field.name || wanted === "") return true;
    if (field.name === "any") return wanted.split(/\s+/).every((word) => texts.get(row).join(" ").includes(word));
    const cell = texts.get(row)[headings.findIndex((heading) => heading.dataset.name === field.name)];
    return field.tagName === "SELECT" ? cell === wanted : cell.includes(wanted);
  });
}

function say(more = "") {
  const count = rows.filter((row) => !row.hidden).length;
  shown.textContent = `${count} of ${rows.length} results${more}`;
}

function filter() {
  for (const row of rows) {
    row.hidden = !matches(row);
    for (const point of points.get(row.id) || []) point.classList.toggle("filtered", row.hidden);
  }
  say();
}

function value(row, column) {
  const cell = texts.get(row)[column];
  if (!headings[column].classList.contains("n")) return cell;
  return cell === "-" ? NaN : parseFloat(cell.replaceAll(",", ""));
}

function sort(heading) {
  const column = headings.indexOf(heading);
  const descending = heading.getAttribute("aria-sort") === "ascending";
  for (const other of headings) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const known = (row) => value(row, column) === value(row, column) && value(row, column) !== "-";
  rows.sort((one, other) => {
    if (!known(one) || !known(other)) return known(other) - known(one); // what is not known comes last
    const [a, b] = [value(one, column), value(other, column)];
    const order = typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
    return descending ? -order : order;
  });
  body.append(...rows);
  say(`, by ${heading.innerText.trim()}, ${descending ? "descending" : "ascending"}`);
}

for (const heading of headings.filter((each) => each.dataset.name)) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...heading.childNodes);
  button.addEventListener("click", () => sort(heading));
  heading.append(button);
}
// A link to a row that the filter hides shows all again.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  const row = link && document.getElementById(decodeURIComponent(link.getAttribute("href").slice(1)));
  if (row && row.hidden) {
    form.reset();
    filter();
  }
});
form.addEventListener("input", filter);
form.addEventListener("reset", () => setTimeout(filter));
form.addEventListener("submit", (event) => event.preventDefault());
form.hidden = false;
filter();
