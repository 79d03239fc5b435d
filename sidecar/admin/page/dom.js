// Putting values on the page. Whatever comes from records, answers or names is set as text, never
// as markup; and only where it differs, so that selections and screen readers are left alone.

export function setText(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

export function setShown(element, shown) {
  if (element.hidden === shown) element.hidden = !shown;
}

/** The elements of a piece of the page by their data-part. */
export function partsOf(root) {
  const found = {};
  for (const element of root.querySelectorAll("[data-part]")) found[element.dataset.part] = element;
  return found;
}

export function element(name, className = "", text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

/** As many children as there are items: make builds one, fill(child, item) says what it shows. */
export function repeat(parent, items, make, fill) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  while (parent.children.length < items.length) parent.append(make());
  items.forEach((item, index) => fill(parent.children[index], item));
}

/** Rows of a table. columns: functions of an item; the first one names the row. numbers: which
 *  columns are numbers. */
export function rows(body, items, columns, numbers) {
  const make = () => {
    const row = element("tr");
    columns.forEach((_, index) => {
      const cell = element(index ? "td" : "th", numbers.has(index) ? "n" : "");
      if (!index) cell.scope = "row";
      row.append(cell);
    });
    return row;
  };
  repeat(body, items, make, (row, item) =>
    columns.forEach((column, index) => setText(row.children[index], column(item))),
  );
}
