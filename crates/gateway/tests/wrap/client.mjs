// What npm's `@modelcontextprotocol/sdk` client sees of a server that it starts: one JSON object per line.
//
//     node crates/gateway/tests/wrap/client.mjs PATH_OF_THE_SDK COMMAND...

const [sdk, command, ...args] = process.argv.slice(2);
const { Client } = await import(`${sdk}/dist/esm/client/index.js`);
const { StdioClientTransport } = await import(`${sdk}/dist/esm/client/stdio.js`);

const tell = (step, saw) => console.log(JSON.stringify({ step, saw }));
const attempt = async (step, asks) => {
    try {
        tell(step, await asks());
    } catch (error) {
        tell(step, [error.code, error.message]);
    }
};

const client = new Client({ name: "third-party", version: "1.0.0" });
// Only some variables are passed on by default.
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "ignore" }));
tell("connected", [client.getServerVersion(), client.getServerCapabilities(), client.getInstructions()]);
const { tools } = await client.listTools();
tell("tools", tools);
const call = (name, args, options) => () => client.callTool({ name, arguments: args }, undefined, options);
await attempt("unknown", call("nope", {}));
if (tools.some((tool) => tool.name === "convert_time")) {
    const zones = { source_timezone: "Europe/Oslo", time: "12:00", target_timezone: "UTC" };
    await attempt("convert", call("convert_time", zones));
    await attempt("bad arguments", call("convert_time", { time: "12:00" }));
    await attempt("resources", () => client.listResources());
    await attempt("prompts", () => client.listPrompts());
} else {
    await attempt("echo", call("echo", { message: "hello" }));
    await attempt("structured", call("get-structured-content", { location: "Chicago" }));
    await attempt("bad arguments", call("echo", { massage: "hello" }));
    await attempt("resources", () => client.listResources());
    await attempt("prompts", () => client.listPrompts());
    let reports = 0;
    const long = "trigger-long-running-operation";
    await attempt("long", call(long, { duration: 1, steps: 2 }, { onprogress: () => reports++ }));
    tell("progress", reports > 0);
    await attempt("cancelled", call(long, { duration: 20, steps: 2 }, { signal: AbortSignal.timeout(500) }));
    await attempt("after", call("echo", { message: "still here" }));
}
await client.close();
