// Talks to an OpenAI-compatible server with OpenAI's own SDK for Node.js.
//
// Usage: openai_client.mjs FOLDER_WITH_NODE_MODULES agent|proxy BASE_URL MODEL

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [folder, role, baseURL, model] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
const OpenAI = require("openai").default;

const client = new OpenAI({ baseURL, apiKey: "unused", maxRetries: 0, timeout: 60_000 });
const messages = [{ role: "user", content: "What is 1234 times 5678?" }];
const parameters = {
  type: "object",
  properties: { a: { type: "integer" }, b: { type: "integer" } },
  required: ["a", "b"],
};
const multiply = {
  type: "function",
  function: { name: "multiply", description: "Multiply two whole numbers: a times b.", parameters },
};

// The text of a streamed completion; every frame went through the SDK's parser.
async function streamed(request) {
  const pieces = [];
  let finish = null;
  for await (const chunk of await client.chat.completions.create({ stream: true, model, ...request })) {
    assert.equal(chunk.object, "chat.completion.chunk");
    for (const choice of chunk.choices) {
      if (choice.delta.content) pieces.push(choice.delta.content);
      finish = choice.finish_reason ?? finish;
    }
  }
  assert.equal(finish, "stop");
  assert.ok(pieces.length > 1, `not streamed: ${JSON.stringify(pieces)}`);
  return pieces.join("");
}

async function agent() {
  const names = [];
  for await (const entry of client.models.list()) names.push(entry.id);
  assert.deepEqual(names, [model]);
  // The agent calls its own tools: the answer holds the product.
  const answer = await client.chat.completions.create({ model, messages });
  assert.equal(answer.choices[0].finish_reason, "stop");
  assert.match(answer.choices[0].message.content, /7006652/);
  assert.match(await streamed({ messages }), /7006652/);
  const runner = client.chat.completions.stream({ model, messages });
  assert.match(await runner.finalContent(), /7006652/);
  const quotes = [{ role: "user", content: "It's \"None\", isn't it?\nA second line." }];
  assert.ok(await streamed({ messages: quotes }));
  // A session is remembered under the name that the client gives it.
  const session = { headers: { "X-Session-ID": "node" } };
  const { data, response } = await client.chat.completions
    .create({ model, messages }, session)
    .withResponse();
  assert.equal(response.headers.get("x-session-id"), "node");
  assert.equal(data.session_id, "node");
  await assert.rejects(client.chat.completions.create({ model, messages: [] }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.match(error.message, /messages are required/);
    return true;
  });
}

async function proxy() {
  const names = [];
  for await (const entry of client.models.list()) names.push(entry.id);
  assert.ok(names.includes(model), names.join());
  const answer = await client.chat.completions.create({ model, messages, tools: [multiply] });
  assert.equal(answer.choices[0].finish_reason, "tool_calls");
  const [call] = answer.choices[0].message.tool_calls;
  assert.deepEqual(JSON.parse(call.function.arguments), { a: 1234, b: 5678 });
  assert.ok(await streamed({ messages: [{ role: "user", content: "hello there" }] }));
  // The SDK's own loop: it calls the function, sends its result, and goes on until there is an answer.
  const calls = [];
  const runner = client.chat.completions.runTools({
    model,
    messages,
    stream: true,
    tools: [
      {
        type: "function",
        function: {
          name: "multiply",
          description: multiply.function.description,
          parameters,
          parse: JSON.parse,
          function: ({ a, b }) => {
            calls.push([a, b]);
            return String(a * b);
          },
        },
      },
    ],
  });
  assert.match(await runner.finalContent(), /7006652/);
  assert.deepEqual(calls, [[1234, 5678]]);
  await assert.rejects(
    client.chat.completions.create({ model: "no-such-model", messages }),
    (error) => {
      assert.ok(error instanceof OpenAI.NotFoundError);
      assert.match(error.message, /no-such-model/);
      return true;
    },
  );
}

await { agent, proxy }[role]();
console.log("ok");
