// The table of methods: sorting, and folding of the single kernels.

// Numbers by their exact value, words by alphabet; cells without a value last, whichever way.
function sortBy(heading, headings, body) {
  const column = headings.indexOf(heading);
  const direction = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
  for (const other of headings) other.setAttribute("aria-sort", other === heading ? direction : "none");
  const sign = direction === "ascending" ? 1 : -1;
  const cells = (row) => row.children[column];
  const key = (row) => (column === 0 ? cells(row).textContent : parseFloat(cells(row).dataset.key ?? "NaN"));
  const compare = (a, b) => {
    const [left, right] = [key(a), key(b)];
    if (column === 0) return sign * left.localeCompare(right, "en", { numeric: true });
    if (Number.isNaN(left) || Number.isNaN(right)) return Number.isNaN(left) - Number.isNaN(right);
    return sign * (left - right);
  };
  body.append(...[...body.rows].sort(compare));
}

function makeSortable(table) {
  const headings = [...table.tHead.rows[0].children];
  for (const heading of headings) {
    heading.querySelector("button").addEventListener("click", () => sortBy(heading, headings, table.tBodies[0]));
  }
}

function foldSingleKernels(button) {
  const show = (shown) => {
    for (const row of document.querySelectorAll(".sk-other")) row.hidden = !shown;
    button.setAttribute("aria-expanded", shown);
    button.textContent = (shown ? "Hide " : "Show ") + button.dataset.what;
  };
  button.hidden = false;
  button.addEventListener("click", () => show(button.getAttribute("aria-expanded") !== "true"));
  show(false);
}

// Columns beyond the edge would go unnoticed where scroll bars are hidden.
function hintAtMore(scroll, hint) {
  const check = () => { hint.hidden = scroll.scrollWidth <= scroll.clientWidth + 1; };
  new ResizeObserver(check).observe(scroll);
  check();
}

makeSortable(document.querySelector("table"));
const fold = document.getElementById("fold");
if (fold) foldSingleKernels(fold);
hintAtMore(document.querySelector(".scroll"), document.getElementById("more-columns"));
