"use strict";
// One hit a page: titles, sections and words of one page are several to the search.
addEventListener("DOMContentLoaded", () => {
  const results = document.getElementById("search-results");
  if (!results) return;
  new MutationObserver(() => {
    const seen = new Set();
    for (const hit of results.querySelectorAll("ul.search > li")) {
      const page = hit.querySelector("a")?.href.split("#")[0].split("?")[0];
      if (page && seen.has(page)) hit.remove();
      seen.add(page);
    }
  }).observe(results, { childList: true, subtree: true });
});
