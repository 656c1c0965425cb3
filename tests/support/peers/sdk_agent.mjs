// An agent written against the official TypeScript SDK; plays the same turns as sdk_agent.py.
// Usage: node sdk_agent.mjs FOLDER_OF_PEERS
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const acp = await import(
  pathToFileURL(`${process.argv[2]}/node_modules/@agentclientprotocol/sdk/dist/v1/stable/acp.js`)
);
const { agent: toAgent, client: toClient } = acp.methods;

let sessions = 0;
let cancel = () => {};

const say = (client, sessionId, text) =>
  client.notify(toClient.session.update, {
    sessionId,
    update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text } },
  });

async function plain(client, sessionId) {
  await say(client, sessionId, "Good ");
  await say(client, sessionId, "morning \u2028 \u{1f600}");
  return "end_turn";
}

async function tool(client, sessionId) {
  await client.notify(toClient.session.update, {
    sessionId,
    update: { sessionUpdate: "tool_call", toolCallId: "call-1", title: "Edit a file", kind: "edit", status: "pending" },
  });
  const { outcome } = await client.request(toClient.session.requestPermission, {
    sessionId,
    toolCall: { toolCallId: "call-1", title: "Edit a file" },
    options: [
      { optionId: "yes", name: "Allow", kind: "allow_once" },
      { optionId: "no", name: "Reject", kind: "reject_once" },
    ],
  });
  const status = outcome.outcome === "selected" && outcome.optionId === "yes" ? "completed" : "failed";
  await client.notify(toClient.session.update, {
    sessionId,
    update: { sessionUpdate: "tool_call_update", toolCallId: "call-1", status },
  });
  return "end_turn";
}

async function wait(client, sessionId) {
  const cancelled = new Promise((resolve) => (cancel = resolve));
  await say(client, sessionId, "waiting");
  await cancelled;
  return "cancelled";
}

const turns = { plain, tool, wait };
const connection = acp
  .agent({ name: "scripted" })
  .onRequest(toAgent.initialize, () => ({ protocolVersion: acp.PROTOCOL_VERSION, agentCapabilities: {} }))
  .onRequest(toAgent.session.new, ({ params }) => ({ sessionId: `session-${(sessions += 1)}-${params.cwd.length}` }))
  .onRequest(toAgent.session.prompt, async ({ params, client }) => ({
    stopReason: await (turns[params.prompt[0].text] ?? plain)(client, params.sessionId),
  }))
  .onNotification(toAgent.session.cancel, () => cancel())
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
await connection.closed;
