// What npm's `@modelcontextprotocol/sdk` client sees of a gateway: one JSON object per line, `{"step": ..., ...}`.
//
//     node crates/gateway/tests/gateway/client.mjs PATH_OF_THE_SDK http://127.0.0.1:8931/mcp

const [sdk, url] = process.argv.slice(2);
const { Client } = await import(`${sdk}/dist/esm/client/index.js`);
const { StreamableHTTPClientTransport } = await import(`${sdk}/dist/esm/client/streamableHttp.js`);

const tell = (step, what) => console.log(JSON.stringify({ step, ...what }));
const client = new Client({ name: "third-party", version: "1.0.0" });
const call = async (step, name, args, options) => {
    try {
        tell(step, { result: await client.callTool({ name, arguments: args }, undefined, options) });
    } catch (error) {
        tell(step, { code: error.code, message: error.message });
    }
};

const transport = new StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);
tell("connected", { version: transport.protocolVersion, server: client.getServerVersion().name });
const { tools } = await client.listTools();
tell("tools", { names: tools.map((tool) => tool.name) });
await call("npm", "everything__echo", { message: "hello" });
await call("pypi", "time__get_current_time", { timezone: "Europe/Oslo" });
await call("local", "count_words", { text: "one two  three" });
await call("unknown", "everything__ecko", {});
await call("bad arguments", "everything__echo", { massage: "hello" });
await call("bad local arguments", "count_words", { text: 3 });

const reports = [];
const onprogress = ({ progress, total }) => reports.push([progress, total]);
const long = "everything__trigger-long-running-operation";
await call("long", long, { duration: 1, steps: 4 }, { onprogress });
tell("progress", { reports });

const signal = AbortSignal.timeout(500);
await call("cancelled", long, { duration: 20, steps: 40 }, { signal });
await call("after", "everything__echo", { message: "still here" });
await client.close();
