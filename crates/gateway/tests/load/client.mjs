// npm's `@modelcontextprotocol/sdk` client calls tools by a plan, again and again until its stdin ends.
//
//     node crates/gateway/tests/load/client.mjs PATH_OF_THE_SDK URL_OR_COMMAND...
//
// The first line of stdin is the plan: `[[tool, arguments, part of the answer], ...]`. Each line of stdout is a call: its
// number, `right`, `failed` or what is wrong, its time in milliseconds, and what was said.

import { createInterface } from "node:readline";

const [sdk, target, ...args] = process.argv.slice(2);
const { Client } = await import(`${sdk}/dist/esm/client/index.js`);
const { StdioClientTransport } = await import(`${sdk}/dist/esm/client/stdio.js`);
const { StreamableHTTPClientTransport } = await import(`${sdk}/dist/esm/client/streamableHttp.js`);

const WORKERS = 4;
const LIMIT = 60_000;

const lines = createInterface({ input: process.stdin });
const plan = JSON.parse(await new Promise((resolve) => lines.once("line", resolve)));
let over = false;
lines.once("close", () => (over = true));

const say = (...call) => console.log(JSON.stringify(call));
const client = new Client({ name: "third-party", version: "1.0.0" });
client.onerror = ({ message }) => message.includes("unknown message ID") && say(-1, "an answer too many", 0, message);
const transport = target.startsWith("http")
    ? new StreamableHTTPClientTransport(new URL(target))
    : new StdioClientTransport({ command: target, args, env: process.env });
await client.connect(transport);

let calls = 0;
const work = async () => {
    for (let n = calls++; n < plan.length || !over; n = calls++) {
        const [name, given, part] = plan[n % plan.length];
        const since = performance.now();
        let what, said;
        try {
            const result = await client.callTool({ name, arguments: given }, undefined, { timeout: LIMIT });
            said = result.content.map((block) => block.text ?? "").join(" ");
            what = result.isError ? "failed" : said.includes(part) ? "right" : "not its answer";
        } catch (error) {
            [what, said] = [error.code === -32001 ? "no answer" : "failed", String(error)];
        }
        say(n, what, performance.now() - since, what === "right" ? "" : said.slice(0, 300));
        await new Promise((resolve) => setTimeout(resolve, 10));
    }
};
await Promise.all(Array.from({ length: WORKERS }, work));
await client.close();
