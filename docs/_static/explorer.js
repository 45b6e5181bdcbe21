"use strict";
// The boundary explorer: shows what `relive doctor --trace` wrote of three short episodes.
(() => {
  const mount = document.getElementById("explorer");
  const source = document.getElementById("explorer-data");
  if (!mount || !source) return;
  const data = JSON.parse(source.textContent);
  const MODES = { next_step: "NEXT_STEP", same_step: "SAME_STEP", disabled: "DISABLED" };
  const STEPS = { 1: "1", 3: "3", 5: "5" };
  const ENDS = { truncated: "truncated by a time limit", terminated: "terminated in a terminal state" };
  const GROUPS = { sb3: "Stable-Baselines3 and CleanRL", tianshou: "Tianshou", lerobot: "Stand-ins", fasttd3: "Stand-ins" };
  const PRESETS = [
    ["a stored reset", "library=sb3&mode=next_step&n=1&end=truncated"],
    ["the next episode's observation", "library=fasttd3&mode=same_step&n=1&end=truncated"],
    ["a window across time limits", "library=cpprb&mode=same_step&n=3&end=truncated"],
    ["a value after the end", "library=torchrl&mode=disabled&n=3&end=terminated"],
    ["none", "library=relive&mode=next_step&n=3&end=truncated"],
  ];
  const state = { library: "sb3", mode: "next_step", n: "3", end: "truncated" };

  const el = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== false) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  const svg = (tag, attributes = {}, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  const number = (value) => (value === null ? "not a number" : String(Math.round(value * 1e5) / 1e5));
  const episode = (obs) => (obs === null ? 3 : Math.min(3, Math.floor(obs / 100)));
  const many = (count, one) => `${count} ${one}${count === 1 ? "" : "s"}`;
  const code = (text) => text.split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part));
  const pipeline = () => data.pipelines[state.library];
  const masks = () => pipeline().states[key()].masks ?? [];
  const key = (mode = state.mode, n = state.n, end = state.end) => `${mode}/${n}/${end}`;

  // Observations that the environment returned, and the first one of the episode that follows.
  const columns = [];
  for (const [obs, , next] of data.steps) {
    if (columns.at(-1) !== obs) columns.push(obs);
    columns.push(next);
  }
  columns.push(300);

  // Controls.
  const select = el("select", { id: "ex-library", name: "library" });
  for (const [name, { title }] of Object.entries(data.pipelines)) {
    const label = GROUPS[name.split("-")[0]];
    let group = [...select.children].find((child) => child.label === label);
    if (label && !group) select.append((group = el("optgroup", { label })));
    (group ?? select).append(el("option", { value: name }, title));
  }
  const choice = (name, legend, choices) => {
    const labels = Object.entries(choices).map(([value, text]) =>
      el("label", {}, el("input", { type: "radio", name, value }), el("span", {}, text)));
    return el("fieldset", {}, el("legend", {}, legend), el("div", { class: "ex-choice" }, ...labels));
  };
  const about = el("p", { class: "ex-about", id: "ex-about" });
  const form = el("form", { class: "ex-form", "aria-label": "What to show" },
    el("div", { class: "ex-library" }, el("label", { for: "ex-library" }, "Library"), select),
    choice("mode", "Autoreset mode", MODES),
    choice("n", "Steps of the target, n", STEPS),
    choice("end", "Every episode is", { truncated: "truncated", terminated: "terminated" }));
  const presets = el("p", { class: "ex-presets" }, "Mistakes to look at: ",
    ...PRESETS.flatMap(([text, hash], at) => [at ? ", " : "", el("a", { class: "reference", href: `#${hash}` }, text)]), ".");
  const verdict = el("p", { class: "ex-verdict", role: "status" });
  const faults = el("dl", { class: "ex-faults" });
  const figure = el("div", { class: "ex-figure" });
  const table = el("table", { class: "ex-table" });
  const steps = el("details", { class: "ex-steps" });

  // The cells of one item.
  const chip = (obs) => el("span", { class: `ex-chip ex-e${episode(obs)}` }, number(obs));
  const cell = (name, value, wrong, right, unused) => {
    const shown = name.endsWith("obs") ? chip(value) : el("span", {}, number(value));
    const line = el("span", { class: "ex-value" });
    if (wrong) line.append(el("span", { class: "ex-mark", "aria-hidden": "true" }, "✕ "), el("span", { class: "ex-hidden" }, "wrong: "));
    line.append(shown);
    const made = el("td", wrong ? { class: "ex-wrong" } : {}, line);
    if (unused) made.append(el("small", {}, "not used"));
    if (wrong && right !== undefined) made.append(el("small", { class: "ex-right" }, `right: ${number(right)}`));
    return made;
  };
  // Entries of a window that the episode has, and hollow ones that it lacks.
  const entries = (mask) => {
    const line = el("span", { class: "ex-value" });
    mask.split(" ").forEach((bits, at) => line.append(
      `${at ? ", action " : "obs "}`, el("span", { role: "img", "aria-label": `pad ${[...bits].join(" ")}` },
        bits.replaceAll("1", "○").replaceAll("0", "●"))));
    return el("td", {}, line);
  };
  const row = ([obs, reward, discount, next, probes = [], right], at) => {
    const cells = new Set(probes.map((probe) => data.probes[probe].cell));
    const [rightReward, rightDiscount, rightNext] = right ?? [];
    const made = el("tr", { "data-row": at },
      el("th", { scope: "row" }, String(at + 1)),
      cell("obs", obs, cells.has("obs")),
      cell("reward", reward, cells.has("reward"), rightReward),
      cell("discount", discount, cells.has("discount"), rightDiscount),
      cell("next_obs", next, cells.has("next_obs"), rightNext, discount === 0),
      ...masks().slice(at, at + 1).map(entries),
      el("td", {}, probes.length ? el("strong", {}, probes.join(", ")) : "right"));
    if (cells.has("obs")) made.className = "ex-whole";
    return made;
  };
  const header = (...names) => el("thead", {}, el("tr", {}, ...names.map((name) => el("th", { scope: "col" }, name))));

  // The figure: a line for every item, from its observation to the one that it bootstraps from.
  const draw = ({ items, missing }) => {
    const width = Math.max(300, figure.clientWidth);
    const left = 26, gap = 0.7, top = 84, height = 15;
    const pitch = (width - left - 22) / (columns.length - 1 + 3 * gap);
    const index = (obs) => columns.findLastIndex((column) => column <= (obs ?? 300));
    const x = (obs) => left + pitch * (index(obs) + gap * episode(columns[index(obs)]));
    const bottom = top + height * items.length + 4;
    const parts = [];
    for (let e = 0; e < 4; e++) {
      const mine = columns.filter((obs) => episode(obs) === e);
      const [first, last] = [mine[0], mine.at(-1)].map(x);
      const name = e < 3 ? (pitch < 26 ? `episode ${e}` : `episode ${e}, ${mine.length - 1} steps`) : "3";
      parts.push(
        svg("rect", { class: `ex-band ex-e${e}`, x: first - pitch * 0.5, y: 22, width: last - first + pitch, height: bottom - 20, rx: 6 }),
        svg("text", { class: `ex-name ex-e${e}`, x: (first + last) / 2, y: 15, "text-anchor": "middle" }, name));
      mine.forEach((obs, at) => {
        const end = e < 3 && at === mine.length - 1;
        parts.push(svg("text", { class: "ex-obs", x: x(obs), y: 38, "text-anchor": "middle" }, String(obs)));
        if (at) parts.push(svg("line", { class: `ex-step ex-e${e}`, x1: x(obs) - pitch, x2: x(obs), y1: 50, y2: 50 }));
        if (at) parts.push(svg("text", { class: "ex-reward", x: x(obs) - pitch / 2, y: 67, "text-anchor": "middle" },
          `${pitch < 26 ? "" : "+"}${data.steps.find((step) => step[2] === obs)[1]}`));
        parts.push(end
          ? svg("rect", { class: `ex-end ex-${state.end} ex-e${e}`, x: x(obs) - 5, y: 45, width: 10, height: 10 })
          : svg("circle", { class: `ex-dot ex-e${e}`, cx: x(obs), cy: 50, r: 4 }));
      });
    }
    items.forEach(([obs, , discount, next, probes, right], at) => {
      const y = top + height * at + 4;
      const [from, to] = [x(obs), x(next)];
      const group = svg("g", { class: probes ? "ex-item ex-bad" : "ex-item", "data-row": at });
      group.append(
        svg("rect", { class: "ex-hit", x: 0, y: y - height / 2, width, height }),
        svg("text", { class: "ex-row", x: 14, y: y + 3.5, "text-anchor": "end" }, String(at + 1)),
        svg("line", { class: "ex-window", x1: from, x2: to, y1: y, y2: y }),
        svg("circle", { class: "ex-start", cx: from, cy: y, r: 3.5 }));
      const [older, actions] = (masks()[at] ?? " ").split(" ");
      const entry = (padded, cx, cy) => group.append(svg("circle", { class: padded ? "ex-padded" : "ex-start", cx, cy, r: 2 }));
      if (older) entry(older[0] === "1", from - (older[0] === "1" ? 9 : pitch), y);
      const there = [...actions].filter((bit) => bit === "0").length;
      for (let k = 0; k < actions.length; k++) {
        entry(k >= there, from + (k < there ? pitch * (k + 0.5) : pitch * there + 6 * (k - there + 1)), y + 6);
      }
      if (right?.[1] && right[2] !== next) {
        group.append(svg("path", { class: "ex-should", d: `M${x(right[2])} ${y - 6}v12` }));
      }
      group.append(discount === 0
        ? svg("rect", { class: "ex-start", x: to - 1.5, y: y - 5, width: 3, height: 10 })
        : svg("circle", { class: "ex-target", cx: to, cy: y, r: 4 }));
      if (probes) group.append(svg("text", { class: "ex-cross", x: to < from ? to - 16 : to + 7, y: y + 4 }, "✕"));
      parts.push(group);
    });
    for (const obs of missing) parts.push(svg("circle", { class: "ex-missing", cx: x(obs), cy: 50, r: 8 }));
    figure.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${bottom + 4}`, width, height: bottom + 4, role: "img",
      "aria-label": "Timeline of the three episodes with a line for each stored item, from its observation to the one " +
        "that it bootstraps from. The table has the same items." }, ...parts));
  };

  const show = () => {
    const { title, about: text, version, states } = pipeline();
    const { items, missing } = states[key()];
    select.value = state.library;
    for (const input of form.querySelectorAll("input")) {
      input.checked = state[input.name] === input.value;
      const wanted = { ...state, [input.name]: input.value };
      input.disabled = !Object.keys(states).some((known) =>
        known.startsWith(input.name === "mode" ? `${input.value}/` : `${state.mode}/${wanted.n}/`));
    }
    about.replaceChildren(text, ...(version ? [` Version: ${version}.`] : []));
    const wrong = items.filter((item) => item.length > 4);
    const counts = new Map();
    for (const probe of wrong.flatMap((item) => item[4])) counts.set(probe, (counts.get(probe) ?? 0) + 1);
    if (missing.length) counts.set("step missing", missing.length);
    const right = !wrong.length && !missing.length;
    verdict.className = `ex-verdict ${right ? "ex-fine" : "ex-fault"}`;
    verdict.replaceChildren(
      el("span", { "aria-hidden": "true" }, right ? "✓ " : "✕ "),
      el("strong", {}, right ? `All ${items.length} items are right.` : `${wrong.length} of ${many(items.length, "item")} are wrong.`),
      ` ${title}; ${MODES[state.mode]}, n = ${state.n}, episodes ${ENDS[state.end]}.`,
      ...(missing.length ? [` No item starts at ${missing.join(", ")}.`] : []));
    faults.replaceChildren(...[...counts].flatMap(([probe, count]) => [
      el("dt", {}, `${probe}: ${count}`), el("dd", {}, "Remedy: ", ...code(data.probes[probe].remedy), ".")]));
    table.replaceChildren(
      el("caption", {}, `Items that are stored: ${title}, ${MODES[state.mode]}, n = ${state.n}, ${state.end}`),
      header("#", "obs", "reward", "discount", "next_obs", ...(masks().length ? ["entries of the windows"] : []), "verdict"),
      el("tbody", {}, ...items.map(row)));
    const last = new Set(columns.filter((obs, at) => episode(columns[at + 1] ?? 400) > episode(obs)));
    steps.replaceChildren(el("summary", {}, "The steps that the environment took"), el("table", { class: "ex-table" },
      el("caption", {}, "True steps of the three episodes"), header("obs", "reward", "next_obs", "end"),
      el("tbody", {}, ...data.steps.map(([obs, reward, next]) => el("tr", {}, el("td", {}, chip(obs)),
        el("td", {}, number(reward)), el("td", {}, chip(next)), el("td", {}, last.has(next) ? state.end : ""))))));
    draw(states[key()]);
  };

  // Keep to states that the library has; what it has not falls back to the first one that it has.
  const settle = (wanted) => {
    Object.assign(state, wanted);
    if (!data.pipelines[state.library]) state.library = "sb3";
    const known = Object.keys(pipeline().states).map((name) => name.split("/"));
    if (!known.some(([mode]) => mode === state.mode)) state.mode = known[0][0];
    if (!known.some(([mode, n]) => mode === state.mode && n === state.n)) state.n = known[0][1];
    if (!(state.end in ENDS)) state.end = "truncated";
    show();
  };
  const read = () => {
    const given = new URLSearchParams(location.hash.slice(1));
    return Object.fromEntries(Object.keys(state).filter((name) => given.has(name)).map((name) => [name, given.get(name)]));
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", ({ target }) => {
    settle({ [target.name]: target.value });
    history.replaceState(null, "", `#${new URLSearchParams(state)}`);
  });
  addEventListener("hashchange", () => settle(read()));
  for (const part of [figure, table]) {
    part.addEventListener("pointerover", ({ target }) => {
      const at = target.closest("[data-row]")?.dataset.row;
      for (const other of mount.querySelectorAll("[data-row]")) other.classList.toggle("ex-lit", other.dataset.row === at);
    });
  }
  const key_of_figure = el("ul", { class: "ex-key", "aria-label": "Signs of the figure" },
    el("li", {}, "● starts here"), el("li", {}, "○ bootstraps from here"), el("li", {}, "▮ does not bootstrap"),
    el("li", { class: "ex-bad" }, "┅ ✕ wrong"), el("li", { class: "ex-fine" }, "┃ right next_obs"),
    el("li", {}, "□ truncated, ■ terminated"), el("li", {}, "small ● ○ entries of a window, there and padded"));
  mount.replaceChildren(presets, form, about, verdict, figure, key_of_figure, el("div", { class: "ex-scroll" }, table), faults, steps);
  mount.classList.add("ex-ready");
  settle(read());
  let seen = figure.clientWidth;
  new ResizeObserver(() => {
    if (figure.clientWidth !== seen) draw(pipeline().states[key()]);
    seen = figure.clientWidth;
  }).observe(figure);
})();
