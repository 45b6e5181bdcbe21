"use strict";
// The playground: runs the code of its page in a worker, which loads Python when it is first asked to.
(() => {
  const mount = document.getElementById("playground");
  const source = document.getElementById("playground-data");
  if (!mount || !source) return;
  const given = JSON.parse(source.textContent);
  const here = document.currentScript.src;
  const example = mount.querySelector("pre").textContent.trimEnd();
  const el = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  if (!given) {
    mount.prepend(el("p", { class: "pg-absent" }, "This site was built without the playground. The code runs in any Python with ",
      el("code", {}, "pip install 'relive[gymnasium]'"), "."));
    return;
  }

  const megabytes = Math.round(given.bytes / 1e6);
  const code = el("textarea", { id: "pg-code", spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off",
    rows: example.split("\n").length + 1 });
  code.value = example;
  const run = el("button", { type: "button", class: "pg-run" }, `Load Python (${megabytes} MB) and run`);
  const stop = el("button", { type: "button", disabled: "" }, "Stop");
  const restore = el("button", { type: "button" }, "Restore the example");
  const status = el("p", { class: "pg-status", role: "status" }, "Nothing is loaded before you ask for it.");
  const output = el("pre", { class: "pg-output", tabindex: "0", role: "region", "aria-label": "Output" });
  let worker = null;

  const say = (text) => { status.textContent = text; };
  const idle = () => { run.disabled = false; stop.disabled = true; run.textContent = worker ? "Run" : `Load Python (${megabytes} MB) and run`; };
  const end = () => { worker?.terminate(); worker = null; idle(); };
  const start = () => {
    if (run.disabled) return;
    run.disabled = true;
    stop.disabled = false;
    output.replaceChildren();
    if (!worker) {
      worker = new Worker(new URL("playground_worker.js", here), { type: "module" });
      worker.onerror = (event) => { end(); say(`The playground cannot start: ${event.message || "workers need a web server"}.`); };
      worker.onmessage = ({ data }) => {
        if (data.status) say(data.status);
        if (data.text) output.append(el("span", data.bad ? { class: "pg-bad" } : {}, `${data.text}\n`));
        if (data.done) { idle(); say(data.done); }
      };
    }
    worker.postMessage({ folder: String(new URL("playground/", here)), wheels: given.wheels, code: code.value });
  };
  run.addEventListener("click", start);
  stop.addEventListener("click", () => { end(); say("Stopped. The next run loads Python again, from the browser's cache."); });
  restore.addEventListener("click", () => { code.value = example; code.focus(); });
  code.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) start();
  });
  mount.replaceChildren(
    el("label", { for: "pg-code" }, "Code"), code,
    el("div", { class: "pg-buttons" }, run, stop, restore, el("small", {}, "Ctrl + Enter runs, too.")), status, output);
})();
