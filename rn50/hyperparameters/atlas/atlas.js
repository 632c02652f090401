"use strict";
// Lets the reader filter and sort the table of results, and hides the points of hidden rows in the charts. Without
// JavaScript the page shows all results.
const table = document.getElementById("results");
const body = table.tBodies[0];
const headings = [...table.tHead.rows[0].cells];
const rows = [...body.rows];
const form = document.getElementById("filter");
const shown = document.getElementById("shown");
// Id of a row -> the links of its points in the charts.
const points = new Map();
for (const link of document.querySelectorAll("#charts figure a")) {
  const id = decodeURIComponent(link.getAttribute("href").slice(1));
  points.set(id, [...(points.get(id) || []), link]);
}

// Row -> texts of its cells. The texts do not change, and asking the page for them thousands of times is slow.
const texts = new Map(rows.map((row) => [row, [...row.cells].map((cell) => cell.textContent.trim().toLowerCase())]));

// Returns true if the row matches every field of the form.
function matches(row) {
  return [...form.elements].every((field) => {
    const query = field.value.trim().toLowerCase();
    if (!field.name || query === "") return true;
    if (field.name === "any") return query.split(/\s+/).every((word) => texts.get(row).join(" ").includes(word));
    const cell = texts.get(row)[headings.findIndex((heading) => heading.dataset.name === field.name)];
    return field.tagName === "SELECT" ? cell === query : cell.includes(query);
  });
}

// Shows how many results are visible, and what else there is to say.
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

// Returns what a row is sorted by: the text of its cell, or in a column of numbers the number, NaN if not known.
function value(row, column) {
  const cell = texts.get(row)[column];
  if (!headings[column].classList.contains("n")) return cell;
  return cell === "-" ? NaN : parseFloat(cell.replaceAll(",", ""));
}

// Sorts the rows by a column; the second time in descending order.
function sort(heading) {
  const column = headings.indexOf(heading);
  const descending = heading.getAttribute("aria-sort") === "ascending";
  for (const other of headings) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const isKnown = (row) => !Number.isNaN(value(row, column)) && value(row, column) !== "-";
  rows.sort((first, second) => {
    if (!isKnown(first) || !isKnown(second)) return isKnown(second) - isKnown(first); // unknown values come last
    const [a, b] = [value(first, column), value(second, column)];
    const order = typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
    return descending ? -order : order;
  });
  body.append(...rows);
  say(`, by ${heading.innerText.trim()}, ${descending ? "descending" : "ascending"}`);
}

for (const heading of headings.filter((cell) => cell.dataset.name)) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...heading.childNodes);
  button.addEventListener("click", () => sort(heading));
  heading.append(button);
}
// A click on a link to a hidden row shows all rows again.
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
