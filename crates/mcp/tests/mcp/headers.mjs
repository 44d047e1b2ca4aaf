// An MCP server over HTTP on the official TypeScript SDK, with a parameter that clients put into a header.
//
//     node crates/mcp/tests/mcp/headers.mjs PATH_OF_THE_SDK PORT

import { createServer } from "node:http";

const [sdk, port] = process.argv.slice(2);
const { McpServer, createMcpHandler, fromJsonSchema } = await import(`${sdk}/dist/index.mjs`);

const owner = { type: "string", "x-mcp-header": "Owner" };
const inputSchema = fromJsonSchema({ type: "object", properties: { owner }, required: ["owner"] });
const mcp = createMcpHandler(() => {
    const server = new McpServer({ name: "headers", version: "1.0.0" });
    server.registerTool("repositories", { inputSchema }, async ({ owner }) => ({
        content: [{ type: "text", text: `those of ${owner}` }],
    }));
    return server;
});

createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const { method, headers } = request;
    const body = chunks.length ? Buffer.concat(chunks) : undefined;
    const answer = await mcp.fetch(new Request(`http://localhost:${port}${request.url}`, { method, headers, body }));
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body) for await (const chunk of answer.body) response.write(chunk);
    response.end();
}).listen(Number(port), "127.0.0.1");
