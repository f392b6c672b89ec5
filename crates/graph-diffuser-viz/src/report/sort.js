for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    const key = (row) => {
      const text = row.cells[column].textContent;
      const number = parseFloat(text);
      return [Number.isNaN(number), number, text];
    };
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      const rows = [...body.rows].map((row) => [key(row), row]);
      rows.sort(([[leftIsText, left, leftText]], [[rightIsText, right, rightText]]) => {
        if (leftIsText !== rightIsText) return leftIsText - rightIsText;
        return sign * (leftIsText ? leftText.localeCompare(rightText) : left - right);
      });
      body.replaceChildren(...rows.map(([, row]) => row));
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    });
  });
}
