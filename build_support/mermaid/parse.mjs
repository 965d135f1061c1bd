// Parses the Mermaid diagrams that stdin has as a JSON list, and writes a list with the error of
// each, or null. Mermaid sanitizes labels by means of a DOM, also when it only parses.
import { readFileSync } from "node:fs";
import { JSDOM } from "jsdom";

const { window } = new JSDOM("");
globalThis.window = window;
globalThis.document = window.document;
const { default: mermaid } = await import("mermaid");

const errors = [];
for (const diagram of JSON.parse(readFileSync(0, "utf8"))) {
  errors.push(await mermaid.parse(diagram).then(() => null, (error) => String(error)));
}
process.stdout.write(JSON.stringify(errors));
