// Runs Python for the playground: Pyodide, NumPy, and pure wheels of relive and Gymnasium, all from one folder.
// Gymnasium imports multiprocessing, which browsers do not have; nothing here starts a process.
const PREAMBLE = `
import os, sys, types
os.environ["RELIVE_KERNELS"] = "numpy"
absent = types.ModuleType("_multiprocessing")
absent.SemLock, absent.sem_unlink = type("SemLock", (), {"SEM_VALUE_MAX": 1}), None
sys.modules["_multiprocessing"] = absent
`;
// The frames of a traceback that are Pyodide's own.
const OWN = / {2}File "[^"]*_pyodide[^]*?(?= {2}File "<exec>")/;
let loading = null;

async function load({ folder, wheels }) {
  postMessage({ status: "Loading Python." });
  const { loadPyodide } = await import(`${folder}pyodide.mjs`);
  const python = await loadPyodide({ indexURL: folder });
  python.setStdout({ batched: (text) => postMessage({ text }) });
  python.setStderr({ batched: (text) => postMessage({ text, bad: true }) });
  postMessage({ status: "Loading NumPy." });
  await python.loadPackage("numpy", { messageCallback: () => {} });
  postMessage({ status: "Loading relive and Gymnasium." });
  for (const wheel of wheels) {
    const answer = await fetch(folder + wheel);
    if (!answer.ok) throw new Error(`${wheel}: ${answer.status}`);
    python.unpackArchive(await answer.arrayBuffer(), "wheel");
  }
  python.runPython(PREAMBLE);
  return python;
}

onmessage = async ({ data }) => {
  try {
    loading ??= load(data);
    const python = await loading;
    postMessage({ status: "Running." });
    const began = performance.now();
    const scope = python.toPy({ __name__: "__main__" });
    try {
      const last = await python.runPythonAsync(data.code, { globals: scope });
      if (last !== undefined) postMessage({ text: String(last) });
      postMessage({ done: `Done in ${((performance.now() - began) / 1000).toFixed(1)} s.` });
    } catch (error) {
      postMessage({ text: error.message.trimEnd().replace(OWN, ""), bad: true, done: "The code raised an error." });
    } finally {
      scope.destroy();
    }
  } catch (error) {
    loading = null;
    postMessage({ text: String(error), bad: true, done: "Python could not be loaded." });
  }
};
