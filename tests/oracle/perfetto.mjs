// node perfetto.mjs FOLDER TRACE < {"name": "SQL", ...} > {"name": [rows], ...}
// Perfetto's trace processor, the program behind ui.perfetto.dev: FOLDER holds its WASM and Google's glue for a
// browser's worker, which is given here what a worker has: a scope, requests, and a first message with a port.
import { readFileSync, writeSync } from "node:fs";
import { pathToFileURL } from "node:url";
import vm from "node:vm";

const [folder, trace] = process.argv.slice(2);
const give = (name, value) => Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
for (const level of ["log", "warn", "error"]) console[level] = () => {}; // stdout is the answer's
give("self", globalThis);
give("WorkerGlobalScope", function () {});
give("location", { href: "http://here/" });
give("XMLHttpRequest", class {
  open() {}
  send() {
    this.response = readFileSync(`${folder}/trace_processor.wasm`);
  }
});
// The glue asks for 64-bit memory by compiling a module that begins with one (section 5, limits with flag 4), and
// would then want the other program.
const { Module } = WebAssembly;
WebAssembly.Module = function (bytes) {
  if (bytes[8] === 5 && bytes[11] & 4) throw new Error("no 64-bit memory here");
  return new Module(bytes);
};
vm.runInThisContext(readFileSync(`${folder}/engine_bundle.node.js`, "utf8"));

const { EngineBase } = await import(pathToFileURL(`${folder}/engine.mjs`).href);
const { port1, port2 } = new MessageChannel();
globalThis.onmessage({ data: port1 });
class Engine extends EngineBase {
  mode = "WASM";
  id = "test";
  rpcSendRequestBytes(bytes) {
    port2.postMessage(bytes);
  }
}
const engine = new Engine();
port2.onmessage = (message) => engine.onRpcResponseBytes(message.data);
const bytes = new Uint8Array(readFileSync(trace));
for (let at = 0; at < bytes.length; at += 1 << 25) await engine.parse(bytes.slice(at, at + (1 << 25)));
await engine.notifyEof();

const plain = (value) => (typeof value === "bigint" ? Number(value) : value);
const answers = {};
for (const [name, sql] of Object.entries(JSON.parse(readFileSync(0, "utf8")))) {
  const result = await engine.query(sql);
  const columns = result.columns();
  answers[name] = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    answers[name].push(columns.map((column) => plain(row.get(column))));
  }
}
const text = Buffer.from(JSON.stringify(answers));
for (let at = 0; at < text.length; ) at += writeSync(1, text, at);
process.exit(0);
