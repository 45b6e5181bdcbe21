// Guides come before the reference, and both before the developers' pages; page titles before words in the text.
const DEVELOPERS = /^docs\/(measurements|tables|decisions|guarantees|evidence|benchmarks|developers|glossary)$/;
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, , , , score]) =>
    score - (DEVELOPERS.test(page) ? 30 : page.startsWith("docs/reference/") ? 20 : page.startsWith("docs/") ? 0 : 40),
};
