"use strict";
// Cells of tables know their titles, which narrow screens show. Blocks of code have a button that copies them: without
// prompts and output, where they have prompts.
addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table.docutils")) {
    const titles = [...table.querySelectorAll("thead th")].map((title) => title.innerText);
    for (const cell of table.querySelectorAll("tbody td")) {
      const title = titles[cell.cellIndex];
      if (title && cell.cellIndex && cell.innerText.trim()) cell.dataset.title = title;
    }
  }
  if (!navigator.clipboard) return;
  const code = (block) => {
    const lines = block.innerText.split("\n");
    const typed = lines.filter((line) => /^(>>>|\.\.\.)( |$)/.test(line));
    return (typed.length ? typed.map((line) => line.slice(4)) : lines).join("\n").trimEnd() + "\n";
  };
  for (const block of document.querySelectorAll("div.highlight > pre")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(code(block));
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    block.parentElement.append(button);
  }
});
