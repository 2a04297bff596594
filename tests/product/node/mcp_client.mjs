// Talks to an MCP server behind the bridge with the MCP project's own SDK for TypeScript.
//
// Usage: mcp_client.mjs FOLDER_WITH_NODE_MODULES URL. The server is @modelcontextprotocol/server-everything.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [folder, url] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
const sdk = "@modelcontextprotocol/sdk";
const { Client } = require(`${sdk}/client/index.js`);
const { StreamableHTTPClientTransport } = require(`${sdk}/client/streamableHttp.js`);
const { CreateMessageRequestSchema } = require(`${sdk}/types.js`);

async function connect(name) {
  const client = new Client({ name, version: "1" }, { capabilities: { sampling: {} } });
  client.setRequestHandler(CreateMessageRequestSchema, async (request) => ({
    role: "assistant",
    model: "none",
    content: { type: "text", text: `sampled for ${name}` },
  }));
  const transport = new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport);
  return { client, transport };
}

const text = (result) => result.content.map((part) => part.text ?? "").join("\n");

const people = await Promise.all(["ada", "bob"].map(connect));
for (const { client } of people) {
  const names = (await client.listTools()).tools.map((tool) => tool.name);
  assert.ok(names.includes("echo"), names.join());
}
// Many at once, in two sessions whose ids are the same.
const echoes = await Promise.all(
  people.flatMap(({ client }, person) =>
    [0, 1, 2, 3].map((number) =>
      client.callTool({ name: "echo", arguments: { message: `${person}.${number}` } }),
    ),
  ),
);
assert.deepEqual(
  echoes.map((echo) => text(echo).replace(/^Echo: /, "")),
  ["0.0", "0.1", "0.2", "0.3", "1.0", "1.1", "1.2", "1.3"],
);
// Progress comes while the tool runs, and only to whom it concerns.
const [ada, bob] = people;
const steps = [];
const names = (await ada.client.listTools()).tools.map((tool) => tool.name);
const long = names.find((name) => /long-?running/i.test(name));
assert.ok(long, names.join());
await ada.client.callTool({ name: long, arguments: { duration: 1, steps: 2 } }, undefined, {
  onprogress: (progress) => steps.push(progress.progress),
});
assert.deepEqual(steps, [1, 2]);
// A request of the server reaches the client whose call it serves.
const sampling = names.find((name) => /sampl/i.test(name));
assert.ok(sampling, names.join());
const sampled = await bob.client.callTool({
  name: sampling,
  arguments: { prompt: "anything", maxTokens: 10 },
});
assert.match(text(sampled), /sampled for bob/);

for (const { client, transport } of people) {
  await transport.terminateSession();
  await client.close();
}
console.log("ok");
