// A choice of releases, where each has a folder (`0.1/`, `0.2/`, ...) beside `versions.json`, a list of their names,
// the newest first. Served from elsewhere, nothing is asked for and nothing shows.
(() => {
  const release = new URL("..", document.currentScript.src);
  const current = release.pathname.split("/").at(-2);
  if (!/^\d/.test(current)) return;
  const offer = (names) => {
    const choice = document.createElement("select");
    choice.className = "versions";
    choice.setAttribute("aria-label", "Version");
    names.forEach((name) => choice.add(new Option(name, name, false, name === current)));
    choice.onchange = async () => {
      const other = new URL(`../${choice.value}/`, release);
      const page = new URL(location.href.slice(release.href.length), other);
      const there = await fetch(page, { method: "HEAD" });
      location = there.ok ? page : other;
    };
    document.querySelector(".sidebar-brand").after(choice);
  };
  fetch(new URL("../versions.json", release)).then((answer) => answer.ok && answer.json().then(offer));
})();
